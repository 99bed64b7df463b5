"""Ranges of inputs, as the layers say that read them: the pictures of a `Rescaling`, the statistics of a `Normalization`."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Iterator, Mapping, Sequence

import keras
import numpy as np

from keras_transformer.backend import keras_private
from keras_transformer.export.data.array_spec import ArraySpec
from keras_transformer.export.data.export_spec import Probe
from keras_transformer.utils.types import ArrayLike, Shape

# Layers and operations that keep the values of what they read, in inference.
_KEEP_VALUES = (
    keras.layers.Reshape,
    keras.layers.Flatten,
    keras.layers.Permute,
    keras.layers.RepeatVector,
    keras.layers.Identity,
    keras.layers.Dropout,
    keras.layers.GaussianNoise,
    keras.layers.Resizing,
    keras.layers.CenterCrop,
    keras.layers.RandomCrop,
    keras.layers.RandomFlip,
    keras.layers.RandomRotation,
    keras.layers.RandomTranslation,
    keras.layers.RandomZoom,
    keras.layers.RandomContrast,
    keras.layers.RandomBrightness,
    keras.layers.ZeroPadding1D,
    keras.layers.ZeroPadding2D,
    keras.layers.Cropping1D,
    keras.layers.Cropping2D,
)
_KEEPING_OPERATIONS = ("Cast", "ExpandDims", "Squeeze", "Transpose", "Reshape", "Flip", "GetItem")
_HIGHEST_BYTE = 255


@dataclasses.dataclass(frozen=True)
class Range:
    """The values that an input takes: between two bounds, or normal ones of a mean and a deviation.

    Args:
        start: the lower bound, or the mean.
        width: the distance of the bounds, or the deviation.
        is_bounded: bool. Whether no value is outside.

    Example:

    >>> Range(np.float64(0.0), np.float64(255.0), is_bounded=True).draw(np.random.default_rng(0), (2,))
    array([  0., 255.])
    """

    start: np.ndarray | np.float64
    width: np.ndarray | np.float64
    is_bounded: bool

    def draw(self, random: np.random.Generator, shape: Shape) -> np.ndarray:
        """Values of a shape, evenly between the bounds, both of which occur, or normal ones."""
        if not self.is_bounded:
            return self.start + self.width * random.standard_normal(shape)
        values = random.random(shape)
        values.reshape(-1)[:2] = [0.0, 1.0][: values.size]
        return self.start + self.width * values


def ranges_of(tensors: Sequence[keras.KerasTensor]) -> list[Range | None]:
    """For each input of a model the range of its values, where a layer that reads it says what they are.

    Args:
        tensors: the symbolic inputs of a Functional model.

    Example:

    >>> pictures = keras.Input((8, 8, 3))
    >>> model = keras.Model(pictures, keras.layers.Rescaling(1 / 255)(pictures))
    >>> (pixels,) = ranges_of(model.inputs)
    >>> float(pixels.start), float(pixels.width)
    (0.0, 255.0)
    """
    return [_range(tensor) for tensor in tensors]


def with_ranges(probes: Sequence[Probe], inputs: Sequence[ArraySpec], ranges: Mapping[str, Range]) -> None:
    """Fills in the inputs that have a range. Their values depend on the names and labels only.

    Args:
        probes: list of `Probe`, changed in place.
        inputs: tuple of `ArraySpec`.
        ranges: dict of input name to its `Range`.
    """
    for probe in probes:
        for spec in inputs:
            if spec.name in ranges:
                random = np.random.default_rng(zlib.crc32(f"{spec.name} {probe.label}".encode()))
                values = ranges[spec.name].draw(random, probe.inputs[spec.name].shape)
                is_whole = np.dtype(spec.dtype).kind in "iu"
                probe.inputs[spec.name] = np.asarray(np.rint(values) if is_whole else values).astype(spec.dtype)


def readers(tensor: keras.KerasTensor) -> Iterator[tuple[keras.Operation, Sequence[object]]]:
    """The operations that read a tensor, and their arguments: behind those that keep its values, and in nested models."""
    yield from _readers(tensor, set())


def _readers(tensor: keras.KerasTensor, seen: set[int]) -> Iterator[tuple[keras.Operation, Sequence[object]]]:
    """`readers`, without tensors that were met: a model may be called on its own inputs."""
    if id(tensor) in seen:
        return
    seen.add(id(tensor))
    for node in keras_private.consumers(tensor):
        operation, inner = node.operation, keras_private.functional(node.operation)
        if isinstance(inner, keras.Model) and hasattr(inner, "inputs"):
            position = [tensor is each for each in keras.tree.flatten(node.input_tensors)].index(True)
            own = keras.tree.flatten(inner.inputs)
            if position < len(own):
                yield from _readers(own[position], seen)
        elif isinstance(operation, _KEEP_VALUES) or type(operation).__name__ in _KEEPING_OPERATIONS:
            for result in keras.tree.flatten(node.output_tensors):
                yield from _readers(result, seen)
        else:
            yield operation, [*node.arguments.args, *node.arguments.kwargs.values()]


def _range(tensor: keras.KerasTensor) -> Range | None:
    dtype = str(tensor.dtype)
    if dtype in ("string", "bool"):
        return None
    for operation, arguments in readers(tensor):
        found = _of_layer(operation) or _of_arithmetic(operation, arguments)
        if found is not None:
            return found
        if isinstance(operation, keras.layers.Layer) and _count(arguments) == 1:
            # Of a layer that is no graph, the first that says it.
            inner = keras_private.flatten_layers(operation, include_self=False)
            found = next((each for each in map(_of_layer, inner) if each is not None), None)
            if found is not None:
                return found
    return _between(0.0, _HIGHEST_BYTE) if dtype == "uint8" else None


def _count(arguments: Sequence[object]) -> int:
    """The number of symbolic tensors among arguments."""
    return sum(isinstance(each, keras.KerasTensor) for each in keras.tree.flatten(list(arguments)))


def _of_layer(layer: keras.Operation) -> Range | None:
    if isinstance(layer, keras.layers.Rescaling):
        return _of_scale(layer.scale, layer.offset)
    if isinstance(layer, keras.layers.Normalization) and not layer.invert and getattr(layer, "mean", None) is not None:
        return Range(np.asarray(layer.mean), np.sqrt(np.asarray(layer.variance)), is_bounded=False)
    return None


def _of_scale(scale: ArrayLike, offset: ArrayLike) -> Range | None:
    """Values that a scale below 1 and an offset bring to the range from 0 to 1, or from -1 to 1."""
    scale, offset = np.asarray(scale, "float64"), np.asarray(offset, "float64")
    if scale.ndim > 1 or offset.ndim > 1 or not (np.abs(scale) < 1).all() or not scale.all():
        return None
    low = -1.0 if (offset < 0).any() else 0.0
    return _between((low - offset) / scale, (1.0 - offset) / scale)


def _of_arithmetic(operation: keras.Operation, arguments: Sequence[object]) -> Range | None:
    """The range of a division by a number, or of a product with one below 1."""
    numbers = [each for each in arguments if isinstance(each, (int, float)) and not isinstance(each, bool) and each]
    if len(numbers) != 1 or len(arguments) != 2:
        return None
    kind, number = type(operation).__name__, float(numbers[0])
    if kind in ("Divide", "TrueDivide") and arguments[1] is numbers[0] and number > 1:
        # Half of the highest byte comes before a subtraction of 1.
        return _between(0.0, _HIGHEST_BYTE if number == _HIGHEST_BYTE / 2 else number)
    return _of_scale(number, 0.0) if kind == "Multiply" and 0 < number < 1 else None


def _between(low: ArrayLike, high: ArrayLike) -> Range:
    start = np.asarray(low, "float64")
    return Range(start, np.asarray(high, "float64") - start, is_bounded=True)
