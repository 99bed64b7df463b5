"""The weights of written SavedModels, and known integers with scales, which are dequantized when the model runs."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from keras_transformer.export.data.weights import Dequantized, StoredWeight, WeightPair
from keras_transformer.export.data.weights import codes as numbers_of
from keras_transformer.export.graph.traced import weight_names
from keras_transformer.export.quantization.block_quantize import pack_nibbles
from keras_transformer.export.quantization.known_blocks import Found, matrices
from keras_transformer.export.runtime.libraries import SAVED_MODEL
from keras_transformer.utils.types import Tensor

if TYPE_CHECKING:
    import keras

# Variables of a checkpoint: by number, or by the path of a Keras variable, in which TensorFlow escapes slashes.
_NUMBERED = re.compile(r"(?P<group>exported_variables|small)/(?P<index>\d+)/(?P<part>\w*/)?\.ATTRIBUTES/VARIABLE_VALUE")
_KEY = re.compile(r"(?P<group>kept|floats)/(?P<path>[^/]*)/(?P<part>\w*/)?\.ATTRIBUTES/VARIABLE_VALUE")

_ESCAPED = re.compile(r"\.(.)")


def stored_weights(directory: pathlib.Path, files: dict[str, str], names: Sequence[str]) -> Iterator[StoredWeight]:
    """Yields the variables of a SavedModel, which are in the order of `TracedModule.exported_variables`.

    Args:
        directory: `pathlib.Path` of the bundle.
        files: dict of signature name to the SavedModel's path in it.
        names: names of the variables in that order.

    Yields:
        `StoredWeight`.
    """
    reader = tf.train.load_checkpoint(str(directory / SAVED_MODEL / "variables" / "variables"))
    for key in sorted(reader.get_variable_to_shape_map()):
        match = _NUMBERED.fullmatch(key)
        if match and match["group"] == "exported_variables":
            yield StoredWeight(key, reader.get_tensor(key), names[int(match["index"])], True)


class KeptWeight(tf.Module):
    """A weight as integers with scales: `(codes - middle) * scale`, or, with minima, `codes * scale + minimum`.

    Args:
        found: `Found`, with blocks.
        shape: that of the Keras variable.
    """

    def __init__(self, found: Found, shape: tuple[int, ...]) -> None:
        super().__init__()
        blocks = found.blocks
        assert blocks is not None
        self._shape, self._split, self._is_transposed = shape, found.split, found.is_transposed
        self._is_packed = blocks.bits == 4 and blocks.codes.shape[-1] % 2 == 0
        self._middle = _middle(4 if self._is_packed else 8, blocks.minimum is not None)
        numbers = blocks.codes + np.uint8(self._middle - blocks.zero)
        self.codes = tf.Variable(pack_nibbles(numbers) if self._is_packed else numbers, trainable=False)
        self.scale = tf.Variable(blocks.scale, trainable=False)
        self.minimum = None if blocks.minimum is None else tf.Variable(blocks.minimum, trainable=False)

    def __call__(self) -> Tensor:
        numbers = tf.convert_to_tensor(self.codes)
        numbers = unpacked(numbers) if self._is_packed else numbers
        scale = tf.cast(self.scale, tf.float32)[..., tf.newaxis]
        rows = (tf.cast(numbers, tf.float32) - float(self._middle)) * scale
        if self.minimum is not None:
            rows += tf.cast(self.minimum, tf.float32)[..., tf.newaxis]
        rows = tf.reshape(rows, (rows.shape[0], -1))
        return tf.reshape(tf.transpose(rows) if self._is_transposed else rows, self._shape)


def unpacked(codes: Tensor) -> Tensor:
    """Codes of 4 bits from bytes: the reverse of `pack_nibbles` in a graph."""
    low, high = tf.bitwise.bitwise_and(codes, 15), tf.bitwise.right_shift(codes, 4)
    return tf.reshape(tf.stack([low, high], axis=-1), (*codes.shape[:-1], 2 * codes.shape[-1]))


def kept_pairs(directory: pathlib.Path, variables: Sequence[keras.Variable]) -> Iterator[WeightPair] | None:
    """The weights of a SavedModel beside the Keras variables.

    Args:
        directory: path of the bundle.
        variables: the Keras variables.

    Returns:
        Iterator over `WeightPair` of those that the graphs read; None if there are no known integers in the file.
    """
    reader = tf.train.load_checkpoint(str(directory / SAVED_MODEL / "variables" / "variables"))
    stored: dict[tuple[str, str], dict[str, str]] = {}
    for key in reader.get_variable_to_shape_map():
        match = _KEY.fullmatch(key)
        if match:
            path = _ESCAPED.sub(lambda found: "/" if found[1] == "S" else found[1], match["path"])
            stored.setdefault((match["group"], path), {})[(match["part"] or "").rstrip("/")] = key
    if not any(group == "kept" for group, _ in stored):
        return None
    return _pairs(reader, stored, dict(zip(weight_names(variables).values(), variables, strict=True)))


def _pairs(
    reader: tf.train.CheckpointReader, stored: dict[tuple[str, str], dict[str, str]], variables: dict[str, object]
) -> Iterator[WeightPair]:
    for path, variable in variables.items():
        expected = np.asarray(variable)
        if ("floats", path) in stored:
            yield WeightPair(path, expected, Dequantized(reader.get_tensor(stored["floats", path][""])))
        elif ("kept", path) in stored:
            parts = {part: reader.get_tensor(key) for part, key in stored["kept", path].items()}
            yield _pair(path, expected, **parts)


def _pair(
    path: str, expected: np.ndarray, codes: np.ndarray, scale: np.ndarray, minimum: np.ndarray | None = None
) -> WeightPair:
    """A weight as the rows that the file has, which may be any of its axes."""
    is_packed = codes.size < expected.size
    if is_packed:
        codes = np.stack([codes & 15, codes >> 4], axis=-1).reshape(*codes.shape[:-1], -1)
    middle = _middle(4 if is_packed else 8, minimum is not None)
    found = numbers_of(codes).shifted(np.float32(-middle)).scaled(scale[..., None].astype("float32"))
    found = found if minimum is None else found.shifted(minimum[..., None].astype("float32"))
    found = found.map(lambda array: array.reshape(len(array), -1))
    likely = [rows for _, _, rows in matrices(expected) if rows.shape == found.values.shape]
    equal = [rows for rows in likely if np.allclose(rows, found.values)]
    return WeightPair(path, (equal or likely)[0], found) if likely else WeightPair(path, expected, None)


def _middle(bits: int, has_minimum: bool) -> int:
    """The code of 0."""
    return 0 if has_minimum else 1 << bits - 1
