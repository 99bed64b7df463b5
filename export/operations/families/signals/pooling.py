"""Pooling of images and volumes."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import tensorflow as tf

from keras_transformer.export.graph.part import Node
from keras_transformer.export.operations.operation import NAN, ONNX, TFLITE, Attributes, Decomposed, Operation, Region
from keras_transformer.utils.types import Tensor


def pooled_in_turn(
    pool: Callable[..., Tensor], x: Tensor, *, ksize: Sequence[int], strides: Sequence[int], padding: str
) -> Tensor:
    """The planes of volumes `(B, D, H, W, C)` are pooled, then their depth.

    The number of averaged elements of a window is the product of those along each axis, at the borders too.
    """
    channels = x.shape[-1]
    batch, depth, height, width, _ = tf.unstack(tf.shape(x))
    x = tf.reshape(x, tf.stack([batch * depth, height, width, channels]))
    x = pool(x, [1, *ksize[2:4], 1], [1, *strides[2:4], 1], padding)
    height, width = tf.shape(x)[1], tf.shape(x)[2]
    x = tf.reshape(x, tf.stack([batch, depth, height * width, channels]))
    x = pool(x, [1, ksize[1], 1, 1], [1, strides[1], 1, 1], padding)
    return tf.reshape(x, tf.stack([batch, tf.shape(x)[1], height, width, channels]))


def average_in_turn(x: Tensor, *, ksize: Sequence[int], strides: Sequence[int], padding: str) -> Tensor:
    return pooled_in_turn(tf.nn.avg_pool2d, x, ksize=ksize, strides=strides, padding=padding)


def maximum_in_turn(x: Tensor, *, ksize: Sequence[int], strides: Sequence[int], padding: str) -> Tensor:
    return pooled_in_turn(tf.nn.max_pool2d, x, ksize=ksize, strides=strides, padding=padding)


def maximum_of_padded(x: Tensor, *, ksize: Sequence[int], strides: Sequence[int], padding: str) -> Tensor:
    """The lowest number is around images or volumes, where a window needs it.

    Steps above the size of a window leave elements out; the converter would give the difference as a negative padding.
    """
    pads: list[list[Tensor]] = []
    for axis, (size, step) in enumerate(zip(ksize, strides, strict=True)):
        length = tf.shape(x)[axis]
        missing = tf.maximum(((length + step - 1) // step - 1) * step + size - length, 0)
        pads.append([missing // 2, missing - missing // 2])
    x = tf.pad(x, pads, constant_values=x.dtype.min)
    pool = tf.nn.max_pool3d if len(ksize) == 5 else tf.nn.max_pool2d
    return pool(x, ksize, strides, "VALID")


def _leaves_out(node: Node) -> bool:
    pairs = zip(node.attribute("ksize"), node.attribute("strides"), strict=True)
    is_last = node.attribute("data_format") in ("NHWC", "NDHWC")
    return is_last and node.attribute("padding") == "SAME" and any(step > size for size, step in pairs)


def _has_channels_last(node: Node) -> bool:
    return node.attribute("data_format") == "NDHWC" and node.part.spec(node.inputs[0]).shape[-1] is not None


def _of_window(attributes: Attributes, inputs: Sequence[Tensor], result: Tensor) -> float:
    return math.prod(attributes["ksize"].list.i)


_PADDED = Decomposed(maximum_of_padded, ("ksize", "strides", "padding"), _leaves_out)
_in_turn = functools.partial(Decomposed, attributes=("ksize", "strides", "padding"), when=_has_channels_last)

OPERATIONS = (
    Operation(
        "AvgPool3D",
        {TFLITE: _in_turn(average_in_turn)},
        rounds=True,
        sum_length=_of_window,
        differs={TFLITE: (Region(NAN),)},
    ),
    Operation("MaxPool", {ONNX: _PADDED}, differs={TFLITE: (Region(NAN),), ONNX: (Region(NAN),)}),
    Operation("MaxPool3D", {TFLITE: _in_turn(maximum_in_turn), ONNX: _PADDED}),
)
