"""Inputs, outputs and entry points."""

import keras
import numpy as np
import tensorflow as tf
from example_models.trained import ROWS, integers, normal, uniform, words
from keras import layers, ops

from keras_transformer.export import ExportOptions
from situations.attempt import check, fitted


def two_heads_dict_outputs(attempt):
    """A dict of outputs keeps its keys and their order in the file."""
    x = keras.Input((6,), name="x")
    hidden = layers.Dense(8, "relu")(x)
    outputs = {"price": layers.Dense(1, name="price")(hidden), "kind": layers.Dense(3, "softmax", name="kind")(hidden)}
    targets = {"price": normal(ROWS, 1), "kind": integers(3, ROWS)}
    loss = {"price": "mse", "kind": "sparse_categorical_crossentropy"}
    bundle = attempt.proven(fitted(keras.Model(x, outputs), normal(ROWS, 6), targets, loss), normal(3, 6))
    assert list(bundle(normal(1, 6))) == ["price", "kind"]


class Optional(keras.Model):
    """A model with an argument that a caller may leave out."""

    def __init__(self):
        super().__init__()
        self.dense, self.other = layers.Dense(4), layers.Dense(4)

    def call(self, x, context=None, training=False):
        x = self.dense(x)
        return x if context is None else x + self.other(context)


def subclass_with_optional_argument(attempt):
    """One file of the model without the argument, another one with it."""
    model, x, context = Optional(), normal(3, 5), normal(3, 2)
    model(x, context)
    plain = attempt.export(model, options=ExportOptions(inputs=keras.InputSpec(shape=(None, 5))))
    check(plain(x), model(x))
    inputs = {"x": keras.InputSpec(shape=(None, 5)), "context": keras.InputSpec(shape=(None, 2))}
    check(attempt.export(model, options=ExportOptions(inputs=inputs))(x=x, context=context), model(x, context))


def inputs_in_nested_structures(attempt):
    """A subclassed model of dicts of lists, called as the model is."""

    class Nested(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = layers.Dense(3)

        def call(self, inputs):
            left, right = inputs["views"]
            return {"a": self.dense(left), "b": [self.dense(right), inputs["weight"] * 2]}

    model, inputs = Nested(), {"views": [normal(2, 4), normal(2, 4)], "weight": normal(2, 1)}
    expected = model(inputs)
    check(attempt.export(model)(inputs), [expected["a"], *expected["b"]])


def names_with_spaces(attempt):
    """Names of people, not of programs."""
    x = keras.Input((3,), name="Größe (cm)")
    outputs = {"2nd answer": layers.Dense(2)(x), "first-answer": layers.Dense(1)(x)}
    bundle = attempt.proven(keras.Model(x, outputs), normal(2, 3))
    assert list(bundle({"Größe (cm)": normal(2, 3)})) == ["2nd answer", "first-answer"]


class Autoencoder(keras.Model):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = layers.Dense(2, "tanh"), layers.Dense(6)

    def encode(self, x):
        return self.encoder(x)

    def decode(self, code):
        return self.decoder(code)

    def call(self, x):
        return self.decode(self.encode(x))


def encoder_and_decoder_in_one_file(attempt):
    """The parts of a model are entry points beside the whole."""
    from keras_transformer.export import load

    x = normal(ROWS, 6)
    model = fitted(Autoencoder(), x, x)
    signatures = {"encode": model.encode, "decode": (model.decode, keras.InputSpec(shape=(None, 2)))}
    attempt.proven(model, x[:3], options=ExportOptions(signatures=signatures))
    (path,) = attempt.folder.iterdir()
    code = load(path, backend=attempt.format, signature="encode")(x[:3])
    check(code, model.encode(x[:3]))
    check(load(path, backend=attempt.format, signature="decode")(code["output"]), model(x[:3]))


def features_of_a_hidden_layer(attempt):
    """The outputs of layers in the middle, beside the prediction."""
    images = keras.Input((12, 12, 3), name="images")
    x = layers.Conv2D(4, 3, activation="relu", name="early")(images)
    x = layers.GlobalMaxPooling2D(name="pooled")(layers.Conv2D(6, 3, name="late")(x))
    model = keras.Model(images, layers.Dense(2)(x))
    middle = [model.get_layer(name).output for name in ("early", "pooled")]
    attempt.proven(keras.Model(model.inputs, [*middle, model.output]), uniform(2, 12, 12, 3))


def which_pixels_mattered(attempt):
    """Grad-CAM in the file: the gradients of the best class are part of what it computes."""

    class GradCam(keras.Model):
        def __init__(self):
            super().__init__()
            self.features = layers.Conv2D(4, 3, activation="relu", padding="same")
            self.pool, self.head = layers.GlobalAveragePooling2D(), layers.Dense(3)

        def call(self, images):
            maps = self.features(images)
            with tf.GradientTape() as tape:
                tape.watch(maps)
                scores = self.head(self.pool(maps))
                best = tf.reduce_max(scores, axis=-1)
            weights = tf.reduce_mean(tape.gradient(best, maps), axis=(1, 2), keepdims=True)
            return {"scores": scores, "heat": tf.nn.relu(tf.reduce_sum(weights * maps, axis=-1))}

    model, images = GradCam(), uniform(2, 8, 8, 3)
    model(images)
    attempt.proven(model, images)


def names_of_classes_come_out(attempt):
    """Strings in, and the name of the best class out."""
    texts = keras.Input((), dtype="string", name="color")
    number = layers.StringLookup(vocabulary=["red", "green", "blue"])(texts)
    scores = layers.Dense(3)(layers.Embedding(4, 5)(number))
    best = ops.argmax(scores, axis=-1)
    name = layers.StringLookup(vocabulary=["warm", "cold", "neutral"], num_oov_indices=0, invert=True)(best)
    attempt.proven(keras.Model(texts, {"scores": scores, "name": name}), np.asarray(words(["red", "pink"], 6)))


def words_one_at_a_time_in_the_graph(attempt):
    """A loop in the graph writes tokens until the end, each from the last one."""

    class Greedy(layers.Layer):
        def __init__(self):
            super().__init__()
            self.table, self.cell, self.head = layers.Embedding(12, 8), layers.GRUCell(8), layers.Dense(12)

        def call(self, state):
            tokens = ops.zeros((ops.shape(state)[0], 6), "int32")
            last = ops.zeros((ops.shape(state)[0],), "int32")

            def step(index, last, state, tokens):
                output, (state,) = self.cell(self.table(last), [state])
                last = ops.cast(ops.argmax(self.head(output), axis=-1), "int32")
                here = ops.cast(ops.arange(6)[None] == index, "int32")
                return index + 1, last, state, tokens + here * last[:, None]

            return ops.while_loop(lambda index, *_: index < 6, step, (0, last, state, tokens))[-1]

    state = keras.Input((8,), name="state")
    attempt.proven(keras.Model(state, Greedy()(state)), normal(4, 8))


SITUATIONS = (
    two_heads_dict_outputs,
    subclass_with_optional_argument,
    inputs_in_nested_structures,
    names_with_spaces,
    encoder_and_decoder_in_one_file,
    features_of_a_hidden_layer,
    which_pixels_mattered,
    names_of_classes_come_out,
    words_one_at_a_time_in_the_graph,
)
