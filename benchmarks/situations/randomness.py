"""Streams, states and random numbers."""

import keras
import numpy as np
import tensorflow as tf
from example_models.trained import ROWS, normal
from keras import layers, ops

from situations.attempt import check, fitted


def stream_audio_with_a_stateful_lstm(attempt):
    """Sound comes in chunks of any length; two calls compute what one call of both chunks computes."""
    chunks = keras.Input(batch_shape=(1, None, 4))
    stream = keras.Model(chunks, layers.Dense(2)(layers.LSTM(6, stateful=True, return_sequences=True)(chunks)))
    whole_input = keras.Input((None, 4))
    whole = keras.Model(whole_input, layers.Dense(2)(layers.LSTM(6, return_sequences=True)(whole_input)))
    whole.set_weights(stream.get_weights())
    bundle, sound = attempt.export(stream), normal(1, 12, 4)
    for _ in range(2):
        parts = [bundle(sound[:, :5])["output"], bundle(sound[:, 5:])["output"]]
        check({"output": np.concatenate(parts, axis=1)}, whole(sound))
        bundle.reset_state()  # The next speaker.


class Streaming(layers.Layer):
    """A causal convolution that keeps the last samples between calls, in a weight of its own."""

    def build(self, shape):
        self.convolution = layers.Conv1D(3, 3)
        self.past = self.add_weight(shape=(1, 2, shape[-1]), initializer="zeros", trainable=False, name="past")

    def call(self, x):
        x = ops.concatenate([self.past, x], axis=1)
        self.past.assign(x[:, -2:])
        return self.convolution(x)


def stream_with_a_state_of_my_own(attempt):
    """A layer assigns a weight in each call: refused; the state as an input and an output works."""
    chunks = keras.Input(batch_shape=(1, 4, 2), name="chunk")
    attempt.refused(keras.Model(chunks, Streaming()(chunks)), "make it an input of the model")
    past = keras.Input(batch_shape=(1, 2, 2), name="past")
    joined = layers.Concatenate(axis=1)([past, chunks])
    outputs = {"output": layers.Conv1D(3, 3)(joined), "next_past": joined[:, -2:]}
    attempt.proven(keras.Model([past, chunks], outputs), [normal(1, 2, 2), normal(1, 4, 2)])


def draw_from_a_latent_space(attempt):
    """A decoder draws its own noise; the same noise gives the same picture."""

    class Draw(layers.Layer):
        def __init__(self):
            super().__init__()
            self.seed = keras.random.SeedGenerator(1)

        def call(self, labels):
            noise = keras.random.normal((ops.shape(labels)[0], 4), seed=self.seed)
            return ops.concatenate([labels, noise], axis=-1)

    labels = keras.Input((3,), name="labels")
    decoder = layers.Dense(5, "tanh")
    bundle = attempt.export(keras.Model(labels, decoder(Draw()(labels))))
    given, noise = normal(2, 3), normal(2, 4)
    check(bundle(given, normal_noise=noise), decoder(np.concatenate([given, noise], -1)))
    assert np.abs(bundle(given)["output"] - bundle(given)["output"]).max() > 1e-3


class AlwaysDropout(layers.Layer):
    """Dropout in inference too."""

    def __init__(self, rate):
        super().__init__()
        self.rate, self.seed = rate, keras.random.SeedGenerator(3)

    def call(self, x):
        return keras.random.dropout(x, self.rate, seed=self.seed)


def mc_dropout_uncertainty(attempt):
    """Monte Carlo dropout: calls of the file differ, and their mean is what the network computes without dropout."""
    x = keras.Input((6,), name="x")
    hidden, head = layers.Dense(64, "relu"), layers.Dense(1)
    model = fitted(keras.Model(x, head(AlwaysDropout(0.2)(hidden(x)))), normal(ROWS, 6), normal(ROWS, 1))
    bundle, inputs = attempt.export(model), normal(1, 6)
    draws = np.concatenate([bundle(np.repeat(inputs, 200, axis=0))["output"] for _ in range(10)])
    mean, deviation = draws.mean(), draws.std()
    assert deviation > 1e-3
    assert abs(mean - float(np.asarray(head(hidden(inputs)))[0, 0])) < 5 * deviation / np.sqrt(len(draws))


def random_numbers_of_tensorflow(attempt):
    """A layer that calls `tf.random` is refused; the numbers as an input work."""
    x, noise = keras.Input((4,), name="x"), keras.Input((4,), name="noise")
    noisy = layers.Lambda(lambda each: each + tf.random.normal(tf.shape(each)))
    attempt.refused(keras.Model(x, layers.Dense(2)(noisy(x))), "make it an input of the model")
    attempt.proven(keras.Model([x, noise], layers.Dense(2)(layers.Add()([x, noise]))), [normal(3, 4), normal(3, 4)])


SITUATIONS = (
    stream_audio_with_a_stateful_lstm,
    stream_with_a_state_of_my_own,
    draw_from_a_latent_space,
    mc_dropout_uncertainty,
    random_numbers_of_tensorflow,
)
