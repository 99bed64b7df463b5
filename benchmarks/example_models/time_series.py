"""Models of time series: forecasts, anomalies."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from example_models.trained import ROWS, integers, normal, trained


def temporal_convolutions():
    """TCN: residual blocks of dilated causal convolutions, on any number of steps."""
    series = x = keras.Input((None, 3), name="series")
    for dilation in (1, 2, 4):
        y = x
        for _ in range(2):
            y = layers.Conv1D(8, 3, padding="causal", dilation_rate=dilation)(y)
            y = layers.SpatialDropout1D(0.1)(layers.ReLU()(layers.BatchNormalization()(y)))
        x = layers.ReLU()(layers.Add()([layers.Conv1D(8, 1)(x), y]))
    model = keras.Model(series, layers.Dense(1)(layers.Lambda(lambda each: each[:, -1, :])(x)))
    return trained(model, normal(ROWS, 24, 3), normal(ROWS, 1), "huber")


class Block(layers.Layer):
    """A block of N-BEATS: what it explains of the past, and its part of the forecast, in a basis."""

    def __init__(self, past, future, kind, **options):
        super().__init__(**options)
        self.hidden = [layers.Dense(16, "relu") for _ in range(2)]
        times = np.arange(past + future) / future
        basis = {
            "trend": [times**power for power in range(3)],
            "seasons": [wave(2 * np.pi * rate * times) for rate in (1, 2) for wave in (np.sin, np.cos)],
        }[kind]
        basis = np.stack(basis).astype("float32")
        self.past, self.future = tf.constant(basis[:, :past]), tf.constant(basis[:, past:])
        self.coefficients = layers.Dense(2 * len(basis))

    def call(self, x):
        for layer in self.hidden:
            x = layer(x)
        past, future = tf.split(self.coefficients(x), 2, axis=-1)
        return past @ self.past, future @ self.future


def n_beats():
    """N-BEATS: blocks that subtract what they explain; trend and seasons."""
    series = residual = keras.Input((20,), name="series")
    forecasts = []
    for kind in ("trend", "trend", "seasons", "seasons"):
        past, future = Block(20, 5, kind)(residual)
        residual = layers.Subtract()([residual, past])
        forecasts.append(future)
    model = keras.Model(series, layers.Add()(forecasts))
    return trained(model, normal(ROWS, 20), normal(ROWS, 5), "mae")


class GatedResidual(layers.Layer):
    """A gated residual network, with a context if there is one."""

    def __init__(self, width, **options):
        super().__init__(**options)
        self.first, self.second, self.skip = layers.Dense(width, "elu"), layers.Dense(width), layers.Dense(width)
        self.gate, self.norm = layers.Dense(2 * width), layers.LayerNormalization()

    def call(self, x, context=None):
        hidden = self.first(x if context is None else ops.concatenate([x, context], axis=-1))
        value, gate = ops.split(self.gate(self.second(hidden)), 2, axis=-1)
        return self.norm(self.skip(x) + value * ops.sigmoid(gate))


def temporal_fusion():
    """A temporal fusion transformer: selected variables, an LSTM, causal attention, quantiles."""
    series, place = keras.Input((16, 4), name="series"), keras.Input((), dtype="int32", name="place")
    context = layers.Embedding(10, 8)(place)
    weights = layers.Softmax()(GatedResidual(4)(series, layers.RepeatVector(16)(context)))
    chosen = GatedResidual(8)(layers.Multiply()([series, weights]))
    x, *_ = layers.LSTM(8, return_sequences=True, return_state=True)(chosen, initial_state=[context, context])
    x = layers.LayerNormalization()(x + chosen)
    attended, scores = layers.MultiHeadAttention(2, 4)(x, x, use_causal_mask=True, return_attention_scores=True)
    quantiles = layers.Dense(3, name="quantiles")(GatedResidual(8)(attended + x))
    model = keras.Model([series, place], {"quantiles": quantiles, "attention": scores, "weights": weights})
    loss = {"quantiles": "mae", "attention": None, "weights": None}
    return trained(model, [normal(ROWS, 16, 4), integers(10, ROWS)], {"quantiles": normal(ROWS, 16, 3)}, loss)


def anomalies():
    """An autoencoder of LSTMs, and how badly it repeats each series."""
    series = keras.Input((12, 2), name="series")
    x = layers.LSTM(8, return_sequences=True)(series)
    x = layers.RepeatVector(12)(layers.LSTM(4)(x))
    x = layers.LSTM(8, return_sequences=True)(layers.LSTM(4, return_sequences=True)(x))
    repeated = layers.TimeDistributed(layers.Dense(2), name="repeated")(x)
    error = layers.Lambda(lambda pair: tf.reduce_mean(tf.abs(pair[0] - pair[1]), axis=[1, 2]), name="error")
    model = keras.Model(series, {"repeated": repeated, "error": error([series, repeated])})
    values = normal(ROWS, 12, 2)
    return trained(model, values, {"repeated": values}, {"repeated": "mse", "error": None})


class Frequencies(layers.Layer):
    """A learned filter of the frequencies of a series."""

    def build(self, shape):
        count = shape[1] // 2 + 1
        self.real = self.add_weight(shape=(count, shape[2]), initializer="ones", name="real")
        self.imaginary = self.add_weight(shape=(count, shape[2]), initializer="zeros", name="imaginary")

    def call(self, x):
        spectrum = tf.signal.rfft(tf.transpose(x, (0, 2, 1)))
        spectrum = spectrum * tf.transpose(tf.complex(self.real, self.imaginary))
        return tf.transpose(tf.signal.irfft(spectrum), (0, 2, 1))


def decomposition():
    """Trend by a moving average, the rest through a filter of frequencies, normalized per instance and back."""
    series = keras.Input((16, 3), name="series")
    mean, deviation = ops.mean(series, axis=1, keepdims=True), ops.std(series, axis=1, keepdims=True) + 1e-5
    x = (series - mean) / deviation
    trend = layers.AveragePooling1D(5, strides=1, padding="same")(x)
    rest = Frequencies()(layers.Subtract()([x, trend]))
    forecast = layers.Permute((2, 1))(layers.Dense(4)(layers.Permute((2, 1))(layers.Add()([trend, rest]))))
    return trained(keras.Model(series, forecast * deviation + mean), normal(ROWS, 16, 3), normal(ROWS, 4, 3), "mse")


EXAMPLES = (temporal_convolutions, n_beats, temporal_fusion, anomalies, decomposition)
