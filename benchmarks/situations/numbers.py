"""Precisions, bytes, numbers that are missing."""

import keras
import numpy as np
from example_models.trained import ROWS, integers, normal, uniform
from keras import layers, ops

from keras_transformer.export.quantization.options import Int8Static
from situations.attempt import check, fitted


def _network(dtype=None):
    x = keras.Input((8,), name="x")
    hidden = layers.BatchNormalization(dtype=dtype)(layers.Dense(32, "relu", dtype=dtype)(x))
    return keras.Model(x, layers.Dense(4, dtype=dtype)(hidden))


def half_precision(attempt):
    """Half the bytes: weights in 16 bits."""
    model = fitted(_network(), normal(ROWS, 8), normal(ROWS, 4))
    attempt.proven(model, normal(5, 8), quantize="fp16", limit=1e-2)


def mixed_precision_policy(attempt):
    """Trained with the policy mixed_float16; the file computes in float32."""
    model = fitted(_network("mixed_float16"), normal(ROWS, 8), normal(ROWS, 4))
    attempt.proven(model, normal(5, 8), limit=1e-2)


def bfloat16_weights(attempt):
    """A model all of bfloat16."""
    attempt.proven(_network("bfloat16"), normal(5, 8), limit=5e-2)


def eight_bits_with_my_data(attempt):
    """Integers of 8 bits, weights and activations, with ranges from data."""
    rows = normal(ROWS, 8)
    model = fitted(_network(), rows, normal(ROWS, 4))
    attempt.proven(
        model, rows[:5], quantize=Int8Static([{"x": rows[index : index + 8]} for index in (0, 8)]), limit=0.1
    )


def double_precision(attempt):
    """Science in float64; LiteRT computes with float32, to which the inputs are cast there."""
    x = keras.Input((3,), dtype="float64", name="x")
    if attempt.format == "tflite":
        attempt.refused(keras.Model(x, layers.Dense(2)(ops.sqrt(ops.abs(x)))), "cast to float32")
        model = keras.Model(x, layers.Dense(2)(ops.sqrt(ops.abs(ops.cast(x, "float32")))))
    else:
        model = keras.Model(x, layers.Dense(2, dtype="float64")(ops.sqrt(ops.abs(x))))
    attempt.proven(model, normal(4, 3).astype("float64"))


def uint8_camera_input(attempt):
    """Bytes of a camera, scaled and resized in the file."""
    frames = keras.Input((20, 30, 3), dtype="uint8", name="frames")
    x = layers.Rescaling(1 / 127.5, offset=-1)(layers.Resizing(16, 16)(frames))
    x = layers.GlobalAveragePooling2D()(layers.Conv2D(4, 3, activation="relu")(x))
    model, pixels = keras.Model(frames, layers.Dense(3)(x)), integers(256, 2, 20, 30, 3, dtype="uint8")
    bundle = attempt.export(model)
    check(bundle(pixels), model.predict(pixels, verbose=0))  # Outside of `predict`, Keras rounds resized bytes.
    assert [each.dtype for each in bundle.inputs] == ["uint8"]


def missing_values_are_nan(attempt):
    """Missing numbers of a table are NaN, and are replaced by a learned value."""

    class Impute(layers.Layer):
        def build(self, shape):
            self.value = self.add_weight(shape=shape[-1:], initializer="random_normal", name="value")

        def call(self, x):
            is_missing = ops.isnan(x)
            return ops.concatenate([ops.where(is_missing, self.value, x), ops.cast(is_missing, x.dtype)], axis=-1)

    rows = keras.Input((5,), name="rows")
    values = normal(4, 5)
    values[1, 2] = values[3, 0] = np.nan
    attempt.proven(keras.Model(rows, layers.Dense(2)(Impute()(rows))), values)


def hours_of_a_day(attempt):
    """Integer arithmetic of dates: remainders of negative numbers, and waves of the hour."""
    hours = keras.Input((1,), dtype="int32", name="hours")
    shifted = (hours - 6) % 24
    angle = ops.cast(shifted, "float32") * (2 * np.pi / 24)
    outputs = {"day": (hours - 6) // 24, "hour": shifted, "wave": ops.concatenate([ops.sin(angle), ops.cos(angle)], -1)}
    attempt.proven(keras.Model(hours, outputs), np.array([[0], [5], [6], [23], [-30]], "int32"))


def logarithm_that_may_be_minus_infinity(attempt):
    """A likelihood whose logarithm is minus infinity where it is zero."""
    x = keras.Input((4,), name="probabilities")
    model = keras.Model(x, ops.sum(ops.log(x), axis=-1))
    values = uniform(3, 4, low=0.1)
    bundle = attempt.proven(model, values)
    values[0, 0] = 0
    check(bundle(values), model(values))


SITUATIONS = (
    half_precision,
    mixed_precision_policy,
    bfloat16_weights,
    eight_bits_with_my_data,
    double_precision,
    uint8_camera_input,
    missing_values_are_nan,
    hours_of_a_day,
    logarithm_that_may_be_minus_infinity,
)
