"""Matrices of which the integers and scales are known, of a GGUF file or of `QuantizedWeights`, found by their values.

A weight is found if each of its rows is a row of one matrix, bit for bit after that is dequantized. So the order of the
rows, the names and the parts into which a matrix was split do not matter, and a weight that has changed is not found.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from keras_transformer.quantization.blocks import Blocks
from keras_transformer.quantization.quantized_weights import QuantizedWeights
from keras_transformer.utils.types import Path

if TYPE_CHECKING:
    from keras_transformer.checkpoints.gguf.container import Container


class _Rows(NamedTuple):
    """The rows of a matrix: their fingerprints in ascending order, and which rows these are."""

    fingerprints: np.ndarray
    order: np.ndarray


class Found(NamedTuple):
    """A weight of any rank as rows of a known matrix.

    Attributes:
        name: of the matrix.
        blocks: `Blocks` of the rows; None if the matrix is known as numbers.
        split: int. The number of axes that are the first axis of the weight as a matrix.
        is_transposed: bool. Whether the rows are the columns of this matrix.
    """

    name: str
    blocks: Blocks | None
    split: int
    is_transposed: bool


class KnownBlocks(abc.ABC):
    """Matrices by their rows. Memory: that of one matrix, and 16 bytes for each row.

    Args:
        source: what has the matrices, for errors.
        matrices: iterable of names and float32 arrays `(N, K)`.
    """

    def __init__(self, source: str, matrices: Iterable[tuple[str, np.ndarray]]) -> None:
        self.source = source
        self._by_width: dict[int, dict[str, _Rows]] = {}
        for name, rows in matrices:
            found = _fingerprints(rows)
            order = np.argsort(found, kind="stable")
            self._by_width.setdefault(rows.shape[1], {})[name] = _Rows(found[order], order)

    @property
    def names(self) -> list[str]:
        """The names of the matrices."""
        return [name for known in self._by_width.values() for name in known]

    @abc.abstractmethod
    def kind(self, name: str) -> str:
        """What a matrix is stored as, for errors."""

    @abc.abstractmethod
    def has_blocks(self, name: str) -> bool:
        """Whether a matrix is known as integers with scales, and not as numbers."""

    @abc.abstractmethod
    def _blocks_of(self, name: str, indices: np.ndarray) -> Blocks:
        """The blocks of some rows of a matrix that has them."""

    def input_range(self, name: str) -> float | None:
        """The largest magnitude of the inputs of products with a matrix, if it is fixed."""
        return None

    def first(self, name: str) -> Blocks:
        """The blocks of the first row of a matrix, which show the layout of all."""
        return self._blocks_of(name, np.array([0]))

    def locations(self, rows: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
        """Each matrix that has all rows `(N, K)` of a weight, and the indices `(N,)` of these rows in it."""
        known = self._by_width.get(rows.shape[1], {})
        first = _fingerprints(rows[:1])
        likely = [name for name, each in known.items() if _positions(each, first) is not None]
        found = _fingerprints(rows) if likely else first
        for name in likely:
            indices = _positions(known[name], found)
            if indices is not None:
                yield name, indices

    def locate(self, rows: np.ndarray) -> tuple[str, np.ndarray] | None:
        """The first of `locations`; None if there is none."""
        return next(self.locations(rows), None)

    def find(self, rows: np.ndarray) -> Blocks | None:
        """The blocks of the rows `(N, K)` of a weight; None if they are not known, or not in blocks."""
        located = self.locate(rows)
        return None if located is None else self._equal(rows, *located)

    def _equal(self, rows: np.ndarray, name: str, indices: np.ndarray) -> Blocks | None:
        """The blocks of some rows of a matrix, if it has them and they have these values."""
        if not self.has_blocks(name):
            return None
        found = self._blocks_of(name, indices)
        return found if np.array_equal(found.values, rows) else None

    def names_of(self, weight: np.ndarray) -> list[str]:
        """The names of the matrices that a weight is rows of; these may be any of its axes."""
        return [name for _, _, rows in matrices(weight) for name, _ in self.locations(rows)]

    def find_weight(self, weight: np.ndarray) -> Found | None:
        """`find` for a weight whose rows may be any of its axes; None if it is not known."""
        for split, is_transposed, rows in matrices(weight):
            located = self.locate(rows)
            if located is not None:
                return Found(located[0], self._equal(rows, *located), split, is_transposed)
        return None


class LearnedBlocks(KnownBlocks):
    """The matrices of `QuantizedWeights` by their rows.

    Args:
        weights: `QuantizedWeights`.
        source: what has them, for errors.

    Example:

    >>> from keras_transformer.quantization import WeightScheme
    >>> from keras_transformer.quantization.rounding import round_rows
    >>> rows = round_rows(np.eye(4, 32), WeightScheme(8, None))
    >>> known = LearnedBlocks(QuantizedWeights({"model/dense/kernel": rows}), "the weights")
    >>> known.names_of(rows.values.T), known.kind("model/dense/kernel")
    (['model/dense/kernel'], '8 bits, a scale for each row')
    """

    def __init__(self, weights: QuantizedWeights, source: str) -> None:
        self._weights = weights
        super().__init__(source, ((name, blocks.values) for name, blocks in weights.items()))

    def kind(self, name: str) -> str:
        """The bits and the numbers that share a scale."""
        blocks = self._weights[name]
        _, number, size = blocks.codes.shape
        shared = "a scale for each row" if number == 1 else f"blocks of {size}"
        return f"{blocks.bits} bits, {shared}" + ("" if blocks.minimum is None else " with minima")

    def input_range(self, name: str) -> float | None:
        return self._weights.input_ranges.get(name)

    def has_blocks(self, name: str) -> bool:
        return True

    def _blocks_of(self, name: str, indices: np.ndarray) -> Blocks:
        return self._weights[name].rows(indices)


class FileBlocks(KnownBlocks):
    """The matrices of a GGUF file by their rows.

    Args:
        path: str or path of the file.

    Raises:
        MissingFileError, CorruptFileError: see `checkpoints.from_gguf`.

    Example:

    >>> import gguf
    >>> path, kind = "/tmp/keras_transformer_doctest.gguf", gguf.GGMLQuantizationType.Q8_0
    >>> writer = gguf.GGUFWriter(path, "llama")
    >>> writer.add_tensor("weight", gguf.quantize(np.full((2, 32), 12.7, "float32"), kind), raw_dtype=kind)
    >>> writer.write_header_to_file(), writer.write_kv_data_to_file(), writer.write_tensors_to_file(), writer.close()
    (None, None, None, None)
    >>> blocks = FileBlocks(path)
    >>> blocks.find(np.full((1, 32), 127 * np.float32(np.float16(0.1)))).codes[0, 0, :2].tolist()
    [255, 255]
    """

    def __init__(self, path: Path) -> None:
        from keras_transformer.checkpoints.gguf.container import Container

        self._container = Container(path)
        super().__init__(str(self._container.path), _matrices_of(self._container))

    def kind(self, name: str) -> str:
        """ggml's name of the type of a tensor."""
        return self._container.tensors[name].kind

    def has_blocks(self, name: str) -> bool:
        from keras_transformer.checkpoints.gguf.blocks import DECODED

        return self.kind(name) in DECODED

    def _blocks_of(self, name: str, indices: np.ndarray) -> Blocks:
        from keras_transformer.checkpoints.gguf.blocks import decoded

        blocks = self._container.blocks(name)
        return decoded(blocks.reshape(-1, blocks.shape[-1])[indices], self.kind(name))


def matrices(weight: np.ndarray) -> Iterator[tuple[int, bool, np.ndarray]]:
    """The matrices that a weight may be, with the number of axes that are the first axis, and whether it is transposed."""
    for split in range(1, weight.ndim):
        matrix = weight.reshape(math.prod(weight.shape[:split]), -1)
        yield split, False, matrix
        yield split, True, matrix.T


def _fingerprints(rows: np.ndarray) -> np.ndarray:
    """A number for each row, equal for equal rows."""
    # No negative zeros.
    rows = np.ascontiguousarray(rows, "float32") + np.float32(0)
    return np.fromiter((hash(row.tobytes()) for row in rows), "int64", len(rows))


def _positions(known: _Rows, found: np.ndarray) -> np.ndarray | None:
    """The rows that have the fingerprints, if there is one for each: in the order of the matrix, if that is possible."""
    if len(found) == len(known.order) and np.array_equal(known.fingerprints, found[known.order]):
        return np.arange(len(found))
    places = np.minimum(np.searchsorted(known.fingerprints, found), len(known.order) - 1)
    return known.order[places] if np.array_equal(known.fingerprints[places], found) else None


def _matrices_of(container: Container) -> Iterator[tuple[str, np.ndarray]]:
    for name, tensor in container.tensors.items():
        if len(tensor.shape) > 1:
            yield name, np.asarray(container.read(name), "float32").reshape(-1, tensor.shape[-1])
