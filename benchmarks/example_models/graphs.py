"""Graph networks: dense adjacency, edges of one known graph, batches of molecules."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from example_models.trained import ROWS, integers, normal, trained, uniform


class GraphConvolution(layers.Layer):
    """Features of neighbors, normalized by the degrees of both ends."""

    def __init__(self, width, **options):
        super().__init__(**options)
        self.dense = layers.Dense(width)

    def call(self, inputs):
        features, adjacency = inputs
        adjacency = adjacency + ops.eye(ops.shape(adjacency)[-1])
        degrees = ops.rsqrt(ops.sum(adjacency, axis=-1))
        return self.dense(ops.matmul(adjacency * degrees[..., None] * degrees[..., None, :], features))


def graph_convolution():
    """Kipf and Welling's network on dense graphs of any number of nodes."""
    features, adjacency = keras.Input((None, 6), name="features"), keras.Input((None, None), name="adjacency")
    x = layers.Dropout(0.5)(layers.ReLU()(GraphConvolution(8)([features, adjacency])))
    x = GraphConvolution(8)([x, adjacency])
    model = keras.Model([features, adjacency], layers.Dense(3, "softmax")(layers.GlobalAveragePooling1D()(x)))
    edges = (uniform(ROWS, 7, 7) > 0.6).astype("float32")
    inputs = [normal(ROWS, 7, 6), np.maximum(edges, edges.transpose(0, 2, 1))]
    return trained(model, inputs, integers(3, ROWS), "sparse_categorical_crossentropy")


class CitationNetwork(keras.Model):
    """The graph is part of the model, which takes the indices of nodes."""

    def __init__(self, features, edges):
        super().__init__()
        self.features, self.edges = tf.constant(features), tf.constant(edges)
        self.first = keras.Sequential([layers.Dense(8, "gelu"), layers.BatchNormalization()])
        self.message, self.update = layers.Dense(8, "gelu"), layers.Dense(8)
        self.head = layers.Dense(4)

    def call(self, nodes):
        x = self.first(self.features)
        for _ in range(2):
            messages = self.message(tf.gather(x, self.edges[1]))
            total = tf.math.unsorted_segment_mean(messages, self.edges[0], num_segments=x.shape[0])
            x = x + tf.nn.l2_normalize(self.update(tf.concat([x, total], axis=1)), axis=-1)
        return self.head(tf.gather(x, tf.reshape(nodes, (-1,))))


def citations():
    """Classes of nodes of one graph: means of messages by segments."""
    model = CitationNetwork(normal(30, 5), integers(30, 2, 90))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return trained(model, integers(30, ROWS), integers(4, ROWS), loss)


class GraphAttention(layers.Layer):
    """Attention over the edges of a graph: a softmax by segments."""

    def __init__(self, width, **options):
        super().__init__(**options)
        self.width = width

    def build(self, shapes):
        self.kernel = self.add_weight(shape=(shapes[0][-1], self.width), name="kernel")
        self.attention = self.add_weight(shape=(2 * self.width, 1), name="attention")

    def call(self, inputs):
        states, edges = inputs
        states = tf.matmul(states, self.kernel)
        pairs = tf.reshape(tf.gather(states, edges), (tf.shape(edges)[0], 2 * self.width))
        scores = tf.squeeze(tf.nn.leaky_relu(tf.matmul(pairs, self.attention)), -1)
        scores = tf.math.exp(tf.clip_by_value(scores, -2.0, 2.0))
        totals = tf.math.unsorted_segment_sum(scores, edges[:, 0], tf.shape(states)[0])
        scores = scores / (tf.gather(totals, edges[:, 0]) + 1e-9)
        neighbors = tf.gather(states, edges[:, 1]) * scores[:, None]
        return tf.math.unsorted_segment_sum(neighbors, edges[:, 0], tf.shape(states)[0])


class AttentionNetwork(keras.Model):
    def __init__(self, features, edges):
        super().__init__()
        self.features, self.edges = features, edges
        self.heads = [GraphAttention(4) for _ in range(2)]
        self.head = layers.Dense(3, "softmax")

    def call(self, nodes):
        states = [tf.nn.elu(head([self.features, self.edges])) for head in self.heads]
        return tf.gather(self.head(tf.concat(states, axis=-1)), nodes)


def graph_attention():
    """Graph attention of several heads over the edges of one graph."""
    model = AttentionNetwork(tf.constant(normal(20, 5)), tf.constant(integers(20, 60, 2)))
    return trained(model, integers(20, ROWS), integers(3, ROWS), "sparse_categorical_crossentropy")


class EdgeNetwork(layers.Layer):
    """Messages along padded bonds, whose kernel is a function of the bond; a GRU cell updates the atoms."""

    def build(self, shapes):
        self.width = shapes[0][-1]
        self.kernel = layers.Dense(self.width * self.width)
        self.cell = layers.GRUCell(self.width)

    def call(self, inputs):
        atoms, bonds, pairs = inputs
        kernels = tf.reshape(self.kernel(bonds), (-1, bonds.shape[1], self.width, self.width))
        for _ in range(2):
            neighbors = tf.gather(atoms, pairs[..., 1], batch_dims=1)
            messages = tf.squeeze(tf.matmul(kernels, neighbors[..., None]), -1)
            count = tf.shape(atoms)[1]
            ids = pairs[..., 0] + tf.range(tf.shape(atoms)[0])[:, None] * count
            total = tf.math.unsorted_segment_sum(
                tf.reshape(messages, (-1, self.width)), tf.reshape(ids, (-1,)), tf.shape(atoms)[0] * count
            )
            flat, _ = self.cell(total, [tf.reshape(atoms, (-1, self.width))])
            atoms = tf.reshape(flat, tf.shape(atoms))
        return atoms


def molecules():
    """A property of molecules: messages along bonds, and attention over atoms."""
    atoms, bonds = keras.Input((8, 6), name="atoms"), keras.Input((12, 3), name="bonds")
    pairs = keras.Input((12, 2), dtype="int32", name="pairs")
    x = EdgeNetwork()([atoms, bonds, pairs])
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 4)(x, x))
    model = keras.Model([atoms, bonds, pairs], layers.Dense(1, "sigmoid")(layers.GlobalAveragePooling1D()(x)))
    inputs = [normal(ROWS, 8, 6), normal(ROWS, 12, 3), integers(8, ROWS, 12, 2)]
    return trained(model, inputs, integers(2, ROWS, 1, dtype="float32"), "binary_crossentropy")


EXAMPLES = (graph_convolution, citations, graph_attention, molecules)
