"""The blocks of a GGUF file that weights of a model were read from, found by their values.

A weight is found if each of its rows is a row of one tensor of the file, bit for bit after that is dequantized. So the order
of the rows, the names and the parts into which a tensor was split do not matter, and a weight that has changed is not found.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from keras_transformer.checkpoints.gguf.blocks import DECODED, decoded
from keras_transformer.checkpoints.gguf.container import Container
from keras_transformer.quantization.blocks import Blocks
from keras_transformer.utils.types import Path


class _Rows(NamedTuple):
    """The rows of a tensor: their fingerprints in ascending order, and which rows these are."""

    fingerprints: np.ndarray
    order: np.ndarray


class FileBlocks:
    """The matrices of a GGUF file by their rows. Memory: that of one tensor, and 16 bytes for each row.

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
        self._container = Container(path)
        self.path = self._container.path
        self._by_width: dict[int, dict[str, _Rows]] = {}
        for name, tensor in self._container.tensors.items():
            if len(tensor.shape) > 1:
                rows = np.asarray(self._container.read(name), "float32").reshape(-1, tensor.shape[-1])
                found = _fingerprints(rows)
                order = np.argsort(found, kind="stable")
                self._by_width.setdefault(rows.shape[1], {})[name] = _Rows(found[order], order)

    def locate(self, rows: np.ndarray) -> tuple[str, np.ndarray] | None:
        """The tensor that has all rows `(N, K)` of a weight, and the indices `(N,)` of these rows in it; or None."""
        known = self._by_width.get(rows.shape[1], {})
        first = _fingerprints(rows[:1])
        likely = [name for name, each in known.items() if _positions(each, first) is not None]
        found = _fingerprints(rows) if likely else first
        for name in likely:
            indices = _positions(known[name], found)
            if indices is not None:
                return name, indices
        return None

    def kind(self, name: str) -> str:
        """ggml's name of the type of a tensor."""
        return self._container.tensors[name].kind

    def find(self, rows: np.ndarray) -> Blocks | None:
        """The blocks of the rows `(N, K)` of a weight; None if the file does not have them, or not in blocks."""
        located = self.locate(rows)
        if located is None or self.kind(located[0]) not in DECODED:
            return None
        name, indices = located
        blocks = self._container.blocks(name)
        found = decoded(blocks.reshape(-1, blocks.shape[-1])[indices], self.kind(name))
        return found if np.array_equal(found.values, rows) else None


def _fingerprints(rows: np.ndarray) -> np.ndarray:
    """A number for each row, equal for equal rows."""
    # No negative zeros.
    rows = np.ascontiguousarray(rows, "float32") + np.float32(0)
    return np.fromiter((hash(row.tobytes()) for row in rows), "int64", len(rows))


def _positions(known: _Rows, found: np.ndarray) -> np.ndarray | None:
    """The rows that have the fingerprints, if there is one for each."""
    places = np.minimum(np.searchsorted(known.fingerprints, found), len(known.order) - 1)
    return known.order[places] if np.array_equal(known.fingerprints[places], found) else None
