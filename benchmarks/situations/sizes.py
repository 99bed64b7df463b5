"""Sizes of inputs."""

import keras
import numpy as np
from example_models.trained import ROWS, integers, normal, uniform
from keras import layers

from keras_transformer.export import ExportOptions
from situations.attempt import fitted


def image_of_any_size(attempt):
    """A network of convolutions trained on squares runs on pictures of other sizes."""
    images = keras.Input((None, None, 3), name="images")
    x = layers.Conv2D(6, 3, strides=2, padding="same", activation="relu")(images)
    x = layers.BatchNormalization()(x)
    x = layers.UpSampling2D(2, interpolation="bilinear")(layers.Conv2D(2, 1)(x))
    model = fitted(keras.Model(images, x), uniform(ROWS, 8, 8, 3), uniform(ROWS, 8, 8, 2))
    attempt.proven(model, uniform(2, 12, 20, 3), uniform(1, 30, 6, 3))


def batch_of_one_fixed_for_a_microcontroller(attempt):
    """Every size is fixed, and the batch is one."""
    samples = keras.Input(batch_shape=(1, 32, 3), name="samples")
    x = layers.MaxPooling1D(2)(layers.Conv1D(4, 3, strides=2, activation="relu")(samples))
    model = keras.Model(samples, layers.Dense(4, "softmax")(layers.Flatten()(x)))
    bundle = attempt.proven(model, normal(1, 32, 3))
    assert [each.shape for each in bundle.inputs] == [(1, 32, 3)]


def fixed_and_any_length_in_one_file(attempt):
    """A phone's GPU needs fixed sizes, other users any length: TFLite has a signature for each."""
    texts = keras.Input((None,), dtype="int32", name="texts")
    x = layers.GlobalAveragePooling1D()(layers.Embedding(20, 8)(texts))
    model = keras.Model(texts, layers.Dense(3)(x))
    options = ExportOptions(static={"batch": 1, "length": 16})
    attempt.proven(model, integers(20, 1, 16), integers(20, 3, 9), options=options)


def two_sequences_of_different_lengths(attempt):
    """A question and a document of other lengths, with a mask each."""
    question, document = (keras.Input((None, 8), name=name) for name in ("question", "document"))
    mask = keras.Input((None,), dtype="bool", name="document_mask")
    x = layers.MultiHeadAttention(2, 4)(question, document, attention_mask=mask[:, None])
    model = keras.Model([question, document, mask], x)
    is_word = np.arange(9)[None] < np.array([[9], [4]])
    attempt.proven(model, [normal(2, 3, 8), normal(2, 9, 8), is_word])


def longer_than_in_training(attempt):
    """Trained on series of twelve steps, run on a hundred."""
    series = keras.Input((None, 2), name="series")
    x = layers.Conv1D(4, 3, padding="causal", dilation_rate=2, activation="relu")(series)
    x = layers.GRU(5)(x)
    model = fitted(keras.Model(series, layers.Dense(1)(x)), normal(ROWS, 12, 2), normal(ROWS, 1))
    attempt.proven(model, normal(2, 100, 2), normal(1, 1, 2))


def sequential_without_an_input(attempt):
    """A Sequential that learned its shapes from `fit` takes any number of rows."""
    model = keras.Sequential([layers.Flatten(), layers.Dense(8, "relu"), layers.Dense(3)])
    attempt.proven(fitted(model, normal(ROWS, 4, 4), normal(ROWS, 3)), normal(7, 4, 4), normal(1, 4, 4))


def nodes_and_edges_of_a_graph(attempt):
    """A graph network takes as many nodes and edges as a graph has: their first axes differ, and have names."""

    class Messages(layers.Layer):
        def build(self, shapes):
            self.dense = layers.Dense(4)

        def call(self, inputs):
            nodes, edges = inputs
            messages = keras.ops.take(self.dense(nodes), edges[:, 1], axis=0)
            # The number of segments is that of the nodes, which only a file knows.
            flags = keras.ops.cast(edges[:, 0][None] == keras.ops.arange(keras.ops.shape(nodes)[0])[:, None], "float32")
            return keras.ops.matmul(flags, messages)

    nodes, edges = keras.Input((3,), name="nodes"), keras.Input((2,), dtype="int32", name="edges")
    options = ExportOptions(dynamic_axes={"nodes": {0: "nodes"}, "edges": {0: "edges"}})
    model = keras.Model([nodes, edges], Messages()([nodes, edges]))
    attempt.proven(model, [normal(5, 3), integers(5, 9, 2)], [normal(4, 3), integers(4, 2, 2)], options=options)


SITUATIONS = (
    image_of_any_size,
    batch_of_one_fixed_for_a_microcontroller,
    fixed_and_any_length_in_one_file,
    two_sequences_of_different_lengths,
    longer_than_in_training,
    sequential_without_an_input,
    nodes_and_edges_of_a_graph,
)
