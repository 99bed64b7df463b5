"""Models of tables: numbers, categories, strings."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from example_models.trained import ROWS, integers, normal, trained, uniform, words


def wide_and_deep():
    """Wide and deep: crossed and encoded categories beside embedded ones, preprocessing in the model."""
    age, hours = keras.Input((1,), name="age"), keras.Input((1,), name="hours")
    job = keras.Input((1,), dtype="string", name="job")
    jobs = ["nurse", "cook", "clerk"]
    number = layers.StringLookup(vocabulary=jobs)(job)
    bins = layers.Discretization(bin_boundaries=[25.0, 40.0, 60.0])(age)
    scale = layers.Normalization(mean=40.0, variance=90.0)
    crossed = layers.HashedCrossing(num_bins=10, output_mode="one_hot")((number, bins))
    wide = layers.Concatenate()([crossed, layers.CategoryEncoding(4, output_mode="one_hot")(number)])
    deep = layers.Concatenate()([scale(age), scale(hours), layers.Flatten()(layers.Embedding(4, 4)(number))])
    deep = layers.Dropout(0.2)(layers.ReLU()(layers.BatchNormalization()(layers.Dense(16)(deep))))
    model = keras.Model([age, hours, job], layers.Dense(1, "sigmoid")(layers.Concatenate()([wide, deep])))
    inputs = [uniform(ROWS, 1, low=18, high=70), uniform(ROWS, 1, high=60), words([*jobs, "pilot"], ROWS, 1)]
    return trained(model, inputs, integers(2, ROWS, 1, dtype="float32"), "binary_crossentropy")


def tab_transformer():
    """TabTransformer: categories attend to each other."""
    categories, numbers = keras.Input((5,), dtype="int64", name="categories"), keras.Input((3,), name="numbers")
    columns = layers.Embedding(5, 8)(layers.Lambda(lambda each: tf.range(5))(categories))
    x = layers.Embedding(20, 8)(categories) + columns
    for _ in range(2):
        x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 4, dropout=0.1)(x, x))
        x = layers.LayerNormalization()(x + layers.Dense(8)(layers.Dense(16, "gelu")(x)))
    x = layers.Concatenate()([layers.Flatten()(x), layers.LayerNormalization()(numbers)])
    model = keras.Model([categories, numbers], layers.Dense(1)(layers.Dense(16, "selu")(x)))
    inputs = [integers(20, ROWS, 5, dtype="int64"), normal(ROWS, 3)]
    return trained(model, inputs, normal(ROWS, 1), "mse")


def _sparsemax(x):
    """The nearest point of the simplex."""
    ordered = tf.sort(x, axis=-1, direction="DESCENDING")
    sums = tf.cumsum(ordered, axis=-1)
    places = tf.range(1, x.shape[-1] + 1, dtype=x.dtype)
    count = tf.reduce_sum(tf.cast(1 + places * ordered > sums, tf.int32), axis=-1, keepdims=True)
    threshold = (tf.gather(sums, count - 1, batch_dims=1) - 1) / tf.cast(count, x.dtype)
    return tf.maximum(x - threshold, 0)


class TabNet(keras.Model):
    """Steps that each look at a few features, chosen by sparsemax."""

    def __init__(self, features=8, steps=2, width=8):
        super().__init__()
        self.norm = layers.BatchNormalization()
        self.choices = [keras.Sequential([layers.Dense(features), layers.BatchNormalization()]) for _ in range(steps)]
        self.transforms = [layers.Dense(4 * width) for _ in range(steps + 1)]
        self.head = layers.Dense(3, "softmax")

    def call(self, inputs, training=False):
        x = self.norm(inputs, training=training)
        prior, total = tf.ones_like(x), 0.0
        _, attended = tf.split(self._glu(self.transforms[0](x)), 2, axis=-1)
        for choose, transform in zip(self.choices, self.transforms[1:], strict=True):
            mask = _sparsemax(choose(attended, training=training) * prior)
            prior = prior * (1.5 - mask)
            decision, attended = tf.split(self._glu(transform(mask * x)), 2, axis=-1)
            total = total + tf.nn.relu(decision)
        return self.head(total)

    def _glu(self, x):
        value, gate = tf.split(x, 2, axis=-1)
        return value * tf.sigmoid(gate)


def tab_net():
    """TabNet: sequential attention to features by sparsemax."""
    return trained(TabNet(), normal(ROWS, 8), integers(3, ROWS), "sparse_categorical_crossentropy")


class DecisionTree(keras.Model):
    """A tree whose nodes send a row left or right with a probability."""

    def __init__(self, depth=3, features=6, used=4, classes=3):
        super().__init__()
        self.depth, self.leaves = depth, 2**depth
        columns = np.random.default_rng(1).choice(features, used, replace=False)
        self.used = tf.constant(np.eye(features, dtype="float32")[columns])
        self.decide = layers.Dense(self.leaves, "sigmoid")
        self.outcomes = self.add_weight(shape=(self.leaves, classes), initializer="random_normal", name="outcomes")

    def call(self, features):
        batch = tf.shape(features)[0]
        decisions = tf.expand_dims(self.decide(tf.matmul(features, self.used, transpose_b=True)), 2)
        decisions = keras.layers.concatenate([decisions, 1 - decisions], axis=2)
        routes, first, last = tf.ones([batch, 1, 1]), 1, 2
        for level in range(self.depth):
            routes = tf.tile(tf.reshape(routes, [batch, -1, 1]), (1, 1, 2)) * decisions[:, first:last]
            first, last = last, last + 2 ** (level + 1)
        return tf.matmul(tf.reshape(routes, [batch, self.leaves]), keras.activations.softmax(self.outcomes))


def decision_forest():
    """A neural decision forest: the mean of trees."""
    features = keras.Input((6,), name="features")
    x = layers.BatchNormalization()(features)
    model = keras.Model(features, layers.Average()([DecisionTree()(x) for _ in range(3)]))
    return trained(model, normal(ROWS, 6), integers(3, ROWS), "sparse_categorical_crossentropy")


class Experts(layers.Layer):
    """Each row goes to the best of several experts, if that one has room: a switch layer."""

    def __init__(self, number=3, width=8, **options):
        super().__init__(**options)
        self.number, self.width = number, width
        self.router = layers.Dense(number, "softmax")

    def build(self, shape):
        self.kernels = self.add_weight(shape=(self.number, shape[-1], self.width), name="kernels")

    def call(self, x):
        gates = self.router(x)
        chosen = ops.one_hot(ops.argmax(gates, axis=-1), self.number)
        place = ops.cumsum(chosen, axis=0) * chosen
        chosen = chosen * ops.cast(place <= 12, "float32")
        routed = ops.einsum("be,bd,edw->bw", chosen, x, self.kernels)
        return ops.relu(routed) * ops.sum(gates * chosen, axis=-1, keepdims=True)


def several_tasks():
    """Two tasks on shared experts: a switch layer, and gates over experts for each task."""
    rows = keras.Input((6,), name="rows")
    switched = Experts()(rows)
    experts = layers.Lambda(lambda each: ops.stack(each, axis=1))([layers.Dense(8, "relu")(switched) for _ in range(3)])
    outputs = {}
    for task in ("click", "buy"):
        gate = layers.Reshape((3, 1))(layers.Dense(3, "softmax")(rows))
        mixed = layers.Lambda(lambda pair: tf.reduce_sum(pair[0] * pair[1], axis=1))([experts, gate])
        outputs[task] = layers.Dense(1, "sigmoid", name=task)(mixed)
    targets = {task: integers(2, ROWS, 1, dtype="float32") for task in outputs}
    return trained(keras.Model(rows, outputs), normal(ROWS, 6), targets, "binary_crossentropy")


EXAMPLES = (wide_and_deep, tab_transformer, tab_net, decision_forest, several_tasks)
