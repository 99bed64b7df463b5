"""Images of other sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformer.export.graph.part import Node
from keras_transformer.export.operations.operation import (
    NAN,
    ONNX,
    TFLITE,
    Attributes,
    Decomposed,
    Native,
    Operation,
    Region,
    in_both,
)
from keras_transformer.export.operations.sizes import size
from keras_transformer.utils.types import Tensor


def scaled_and_translated(
    images: Tensor, sizes: Tensor, scale: Tensor, translation: Tensor, *, kernel_type: str, antialias: bool
) -> Tensor:
    """Products with two matrices, of the weights that each row and column of the images has in those of the result."""
    kernel, reach = _KERNELS[kernel_type]
    images = tf.cast(images, tf.float32)
    for axis in (0, 1):
        step = 1.0 / scale[axis]
        length = tf.cast(size(images, axis + 1), tf.float32)
        width = tf.maximum(step, 1.0) if antialias else tf.constant(1.0)
        places = (_numbers(sizes[axis]) + 0.5) * step - step * translation[axis]
        distances = tf.abs(_distances(places - 0.5, size(images, axis + 1))) / width
        weights = tf.where(distances > reach, tf.zeros_like(distances), kernel(distances))
        is_inside = tf.expand_dims(tf.logical_and(places >= 0.0, places <= length), 1)
        weights = tf.where(is_inside, _normalized(weights), tf.zeros_like(weights))
        images = _mixed(images, weights, axis + 1)
    return images


def resized_by_cubes(images: Tensor, sizes: Tensor) -> Tensor:
    """The same of bicubic interpolation, in which TensorFlow rounds each place between two elements to 1024 steps."""
    images = tf.cast(images, tf.float32)
    for axis in (1, 2):
        places = (_numbers(sizes[axis - 1]) + 0.5) * _step(images, sizes, axis) - 0.5
        before = tf.floor(places)
        places = before + tf.round((places - before) * 1024.0) / 1024.0
        weights = _keys_cubic(tf.abs(_distances(places, size(images, axis))))
        images = _mixed(images, _normalized(weights), axis)
    return images


def resized_by_areas(images: Tensor, sizes: Tensor) -> Tensor:
    """The same of means over areas."""
    images = tf.cast(images, tf.float32)
    for axis in (1, 2):
        step = _step(images, sizes, axis)
        begin = tf.expand_dims(_numbers(sizes[axis - 1]) * step, 1)
        end = tf.expand_dims((_numbers(sizes[axis - 1]) + 1.0) * step, 1)
        elements = tf.expand_dims(_numbers(size(images, axis)), 0)
        shares = tf.minimum(elements + 1.0, end) - tf.maximum(elements, begin)
        images = _mixed(images, tf.maximum(shares, 0.0) / step, axis)
    return images


def nearest_elements(images: Tensor, sizes: Tensor) -> Tensor:
    """Elements at places that are rounded as TensorFlow does: a place on the edge between two is that of one of them."""
    for axis in (1, 2):
        places = tf.floor((_numbers(sizes[axis - 1]) + 0.5) * _step(images, sizes, axis))
        images = tf.gather(images, tf.minimum(tf.cast(places, tf.int32), size(images, axis) - 1), axis=axis)
    return images


def _mixed(images: Tensor, weights: Tensor, axis: int) -> Tensor:
    """Images whose rows (axis 1) or columns (axis 2) are sums of those of others, by weights `(new, old)`."""
    batch, height, width, channels = (size(images, each) for each in range(4))
    count = size(weights, 0)
    if axis == 1:
        rows = tf.reshape(images, tf.stack([batch, height, width * channels]))
        return tf.reshape(tf.matmul(weights, rows), tf.stack([batch, count, width, channels]))
    columns = tf.reshape(images, tf.stack([batch * height, width, channels]))
    return tf.reshape(tf.matmul(weights, columns), tf.stack([batch, height, count, channels]))


def _numbers(count: Tensor | int) -> Tensor:
    return tf.cast(tf.range(count), tf.float32)


def _step(images: Tensor, sizes: Tensor, axis: int) -> Tensor:
    return tf.cast(size(images, axis), tf.float32) / tf.cast(sizes[axis - 1], tf.float32)


def _distances(places: Tensor, length: Tensor | int) -> Tensor:
    """How far each element is from each place."""
    return tf.expand_dims(places, 1) - tf.expand_dims(_numbers(length), 0)


def _normalized(weights: Tensor) -> Tensor:
    total = tf.reduce_sum(weights, 1, keepdims=True)
    is_zero = tf.abs(total) < 1000.0 * np.finfo("float32").tiny
    return weights / tf.where(is_zero, tf.ones_like(total), total)


def _lanczos(radius: int) -> Callable[[Tensor], Tensor]:
    def kernel(x: Tensor) -> Tensor:
        is_near = x <= 1e-3
        safe = tf.where(is_near, tf.ones_like(x), x)
        waves = radius * tf.sin(math.pi * safe) * tf.sin(math.pi / radius * safe)
        return tf.where(is_near, tf.ones_like(x), waves / (math.pi**2 * safe * safe))

    return kernel


def _gaussian(x: Tensor) -> Tensor:
    return tf.exp(-2.0 * x * x)


def _box(x: Tensor) -> Tensor:
    return tf.where(x < 0.5, tf.ones_like(x), tf.where(tf.equal(x, 0.5), 0.5 * tf.ones_like(x), tf.zeros_like(x)))


def _triangle(x: Tensor) -> Tensor:
    return tf.maximum(1.0 - x, 0.0)


def _cubic(near: Sequence[float], far: Sequence[float]) -> Callable[[Tensor], Tensor]:
    """A kernel of two cubic polynomials, from 0 to 1 and from 1 to 2."""

    def kernel(x: Tensor) -> Tensor:
        outer = tf.where(x < 2.0, tf.math.polyval(list(far), x), tf.zeros_like(x))
        return tf.where(x < 1.0, tf.math.polyval(list(near), x), outer)

    return kernel


_keys_cubic = _cubic((1.5, -2.5, 0.0, 1.0), (-0.5, 2.5, -4.0, 2.0))
_mitchell_cubic = _cubic((7 / 6, -2.0, 0.0, 8 / 9), (-7 / 18, 2.0, -10 / 3, 16 / 9))
# The weight of an element by its distance, and the distance up to which there are any.
_KERNELS: dict[str, tuple[Callable[[Tensor], Tensor], float]] = {
    "lanczos1": (_lanczos(1), 1.0),
    "lanczos3": (_lanczos(3), 3.0),
    "lanczos5": (_lanczos(5), 5.0),
    "gaussian": (_gaussian, 1.5),
    "box": (_box, 1.0),
    "triangle": (_triangle, 1.0),
    "keyscubic": (_keys_cubic, 2.0),
    "mitchellcubic": (_mitchell_cubic, 2.0),
}


def by_sizes(graph: Any, node: Any, name: str, arguments: object) -> None:
    """ONNX's `Resize`, of sizes where factors, rounded to float32, would give others."""
    from tf2onnx.onnx_opset.nn import Resize

    given, sizes = graph.get_shape(node.input[0]), node.inputs[1]
    if given and -1 not in given[1:3] and sizes.is_const():
        lengths, sizes = np.array(given[1:3]), sizes.get_tensor_value(as_list=False)
        if (np.floor((sizes / lengths).astype("float32").astype("float64") * lengths) != sizes).any():
            # tf2onnx writes factors for images of known sizes only.
            types = [graph.get_dtype(node.input[0])]
            shapes = [[given[0], -1, -1, given[3]]]
            hidden = graph.make_node("Identity", [node.input[0]], shapes=shapes, dtypes=types)
            graph.replace_input(node, node.input[0], hidden.output[0], 0)
    Resize.version_11(graph, node)


def _is_centered(node: Node) -> bool:
    return bool(node.attribute("half_pixel_centers")) and not node.attribute("align_corners")


def _has_edges(node: Node) -> bool:
    """Whether places may lie on the edge between two elements: not those of sizes that are multiples."""
    lengths, sizes = node.part.spec(node.inputs[0]).shape[1:3].as_list(), node.value(1)
    is_multiple = sizes is not None and None not in lengths and not (sizes % np.array(lengths)).any()
    return _is_centered(node) and not is_multiple


def _is_not_aligned(node: Node) -> bool:
    return not node.attribute("align_corners")


def _of_places(attributes: Attributes, inputs: Sequence[Tensor], result: Tensor) -> float:
    """The coordinate of a result among `n` pixels is rounded by up to `n` units, as is a sum of `8 n²` numbers."""
    return 8.0 * max(inputs[0].shape[1:3]) ** 2


_SCALED = Decomposed(scaled_and_translated, ("kernel_type", "antialias"))
_CUBES = Decomposed(resized_by_cubes, when=_is_centered)
_AREAS = Decomposed(resized_by_areas, when=_is_not_aligned)
_NEAREST = Decomposed(nearest_elements, when=_has_edges)
# The product of NaN and a weight of 0 is NaN.
_NANS = {TFLITE: (Region(NAN),), ONNX: (Region(NAN),)}

OPERATIONS = (
    Operation(
        "ResizeArea", in_both(_AREAS), rounds=True, rounds_coordinates=True, sum_length=_of_places, differs=_NANS
    ),
    Operation("ResizeBicubic", in_both(_CUBES), rounds_coordinates=True, sum_length=_of_places, differs=_NANS),
    Operation("ResizeBilinear", {ONNX: Native(by_sizes)}, rounds_coordinates=True, sum_length=_of_places),
    Operation("ResizeNearestNeighbor", {ONNX: (_NEAREST, Native(by_sizes))}),
    Operation("ScaleAndTranslate", in_both(_SCALED), rounds_coordinates=True, sum_length=_of_places, differs=_NANS),
)
