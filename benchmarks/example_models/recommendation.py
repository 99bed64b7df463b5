"""Models that recommend: click rates, two towers, sessions."""

import keras
import tensorflow as tf
from keras import layers, ops

from example_models.trained import ROWS, integers, normal, trained, words


class PairwiseDots(layers.Layer):
    """The product of each two of several vectors, as in DLRM."""

    def call(self, vectors):
        products = tf.matmul(vectors, vectors, transpose_b=True)
        upper = tf.linalg.band_part(tf.ones_like(products), 0, -1) - tf.linalg.band_part(tf.ones_like(products), 0, 0)
        number = vectors.shape[1]
        return tf.reshape(tf.boolean_mask(products, tf.cast(upper, tf.bool)), (-1, number * (number - 1) // 2))


def dlrm():
    """DLRM: numbers and categories, and the products of each two of their vectors."""
    sizes = (30, 20, 50)
    numbers, categories = keras.Input((6,), name="numbers"), keras.Input((3,), dtype="int32", name="categories")
    bottom = keras.Sequential([layers.Dense(16, "relu"), layers.Dense(8, "relu")])(numbers)
    tables = [layers.Embedding(size, 8)(categories[:, index]) for index, size in enumerate(sizes)]
    pairs = PairwiseDots()(layers.Lambda(lambda each: tf.stack(each, axis=1))([bottom, *tables]))
    top = keras.Sequential([layers.Dense(16, "relu"), layers.Dense(1, "sigmoid")])
    model = keras.Model([numbers, categories], top(layers.Concatenate()([bottom, pairs])))
    return trained(
        model, [normal(ROWS, 6), integers(20, ROWS, 3)], integers(2, ROWS, 1, dtype="float32"), "binary_crossentropy"
    )


class FactorizationMachine(layers.Layer):
    """Half of the square of the sum less the sum of the squares."""

    def call(self, vectors):
        return 0.5 * tf.reduce_sum(
            tf.square(tf.reduce_sum(vectors, 1)) - tf.reduce_sum(tf.square(vectors), 1), axis=1, keepdims=True
        )


def deep_fm():
    """DeepFM of strings: lookups, hashes, a factorization machine and a deep network on one table each."""
    genders, cities = keras.Input((1,), dtype="string", name="gender"), keras.Input((1,), dtype="string", name="city")
    age = keras.Input((1,), name="age")
    fields = [
        layers.StringLookup(vocabulary=["f", "m"])(genders),
        layers.Hashing(num_bins=16)(cities),
        layers.Discretization(bin_boundaries=[18.0, 30.0, 50.0])(age),
    ]
    vectors = layers.Concatenate(axis=1)([layers.Embedding(16, 4)(each) for each in fields])
    deep = layers.Dense(1)(layers.Dense(16, "relu")(layers.Flatten()(vectors)))
    linear = layers.Add()([layers.Flatten()(layers.Embedding(16, 1)(each)) for each in fields])
    score = layers.Activation("sigmoid")(layers.Add()([linear, FactorizationMachine()(vectors), deep]))
    inputs = {
        "gender": words(["f", "m", "x"], ROWS, 1),
        "city": words(["Zürich", "Lima", "Oslo"], ROWS, 1),
        "age": abs(normal(ROWS, 1)) * 40,
    }
    model = keras.Model({"gender": genders, "city": cities, "age": age}, score)
    return trained(model, inputs, integers(2, ROWS, 1, dtype="float32"), "binary_crossentropy")


class Tower(layers.Layer):
    def __init__(self, size, **options):
        super().__init__(**options)
        self.table = layers.Embedding(size, 16)
        self.dense = layers.Dense(8)

    def call(self, ids):
        return tf.math.l2_normalize(self.dense(self.table(ids)), axis=-1)


class TwoTowers(keras.Model):
    """Users and items in one space; each row's item is the right one among all of the batch."""

    def __init__(self):
        super().__init__()
        self.user, self.item = Tower(40), Tower(60)

    def call(self, inputs, training=False):
        return ops.matmul(self.user(inputs["user"]), ops.transpose(self.item(inputs["item"]))) / 0.1


def two_towers():
    """Two towers, a subclassed model of a dict, trained with the other rows of a batch as negatives."""
    inputs = {"user": integers(40, ROWS), "item": integers(60, ROWS)}
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return trained(TwoTowers(), inputs, integers(16, ROWS), loss)


class BestItems(layers.Layer):
    """The scores of all items for the last state of a session, and the best ones."""

    def __init__(self, table, number, **options):
        super().__init__(**options)
        self.table, self.number = table, number

    def call(self, state):
        scores = ops.matmul(state, ops.transpose(self.table.embeddings))
        best, items = ops.top_k(scores, self.number)
        return {"scores": scores, "best": best, "items": items}


def session_gru():
    """Items of a session of any length, zero-padded, to the next one: a GRU with a mask, and the best five."""
    items = keras.Input((None,), dtype="int32", name="items")
    table = layers.Embedding(50, 16, mask_zero=True)
    outputs = BestItems(table, 5)(layers.GRU(16)(table(items)))
    sessions = integers(49, ROWS, 9) + 1
    sessions[::3, 6:] = 0
    loss = {"scores": keras.losses.SparseCategoricalCrossentropy(from_logits=True), "best": None, "items": None}
    return trained(keras.Model(items, outputs), sessions, {"scores": integers(50, ROWS)}, loss)


EXAMPLES = (dlrm, deep_fm, two_towers, session_gru)
