"""Sequences of different lengths in one flat array."""

from __future__ import annotations

import itertools
import pathlib
from collections.abc import Iterable, Sequence

import numpy as np

from keras_transformer.data.errors import SequenceDataError
from keras_transformer.utils.atomic_write import replacing_file
from keras_transformer.utils.types import ArrayLike, Path

_VALUES, _LENGTHS = "values.int32", "lengths.npy"


class Ragged:
    """Integer sequences of different lengths: views into one flat array, in memory or mapped from a file.

    Row i is `values[starts[i] : starts[i] + lengths[i]]`. Removing tokens from the ends of rows copies nothing.

    Args:
        values: integers `(n,)`; a `numpy.memmap` stays on disk.
        lengths: integers `(rows,)`, >= 0.
        starts: integers `(rows,)`, or None if the rows are contiguous.

    Raises:
        SequenceDataError: rows that exceed `values`; an array of the wrong shape or not of integers.

    Example:

    >>> rows = Ragged.of([[5, 6, 7], [8], [9, 10]])
    >>> rows.cut(first=1)[0], len(rows)
    (array([6, 7], dtype=int32), 3)
    >>> rows.padded([2, 0], length=4)
    array([[ 9, 10,  0,  0],
           [ 5,  6,  7,  0]], dtype=int32)
    """

    def __init__(self, values: ArrayLike, lengths: ArrayLike, starts: ArrayLike = None) -> None:
        self.values = values if isinstance(values, np.ndarray) else np.asarray(values)
        self.lengths = np.asarray(lengths, "int64")
        self.starts = np.cumsum(self.lengths) - self.lengths if starts is None else np.asarray(starts, "int64")
        if self.values.ndim != 1 or not np.issubdtype(self.values.dtype, np.integer):
            raise SequenceDataError(
                f"Expected flat values of integers. Received: {self.values.dtype}, shape {self.values.shape}"
            )
        if self.lengths.ndim != 1 or self.lengths.shape != self.starts.shape:
            raise SequenceDataError(
                f"Expected one start and one length per row. Received: {self.starts.shape} and {self.lengths.shape}"
            )
        wrong = (self.lengths < 0) | (self.starts < 0) | (self.starts + self.lengths > len(self.values))
        if wrong.any():
            raise SequenceDataError(f"Row {int(np.argmax(wrong))} exceeds the {len(self.values)} values.")

    @classmethod
    def of(cls, rows: Ragged | Iterable[Sequence[int]]) -> Ragged:
        """Returns a `Ragged` of an iterable of integer sequences; a `Ragged` is returned as it is."""
        if isinstance(rows, Ragged):
            return rows
        rows = list(rows)
        try:
            lengths = np.fromiter(map(len, rows), "int64", len(rows))
            values = np.fromiter(itertools.chain.from_iterable(rows), "int64", int(lengths.sum()))
        except (TypeError, ValueError) as error:
            raise SequenceDataError(f"Expected sequences of integers: {error}") from None
        if len(values) and max(values.max(), -values.min() - 1) > np.iinfo("int32").max:
            raise SequenceDataError(f"Token ids must fit in int32. Received: {values.min()} to {values.max()}")
        return cls(values.astype("int32"), lengths)

    @classmethod
    def write(cls, directory: Path, rows: Iterable[Sequence[int]]) -> Ragged:
        """Writes sequences to two files, with one row in memory at a time, and opens them. Existing files are replaced.

        Args:
            directory: str or path. Created if missing.
            rows: iterable of sequences of integers that fit in int32.

        Returns:
            A `Ragged`, as from `open`.
        Example:

        >>> Ragged.write("tokens", (range(n) for n in (2, 0, 3)))[2].tolist()
        [0, 1, 2]
        """
        directory = pathlib.Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        values, lengths = directory / _VALUES, directory / _LENGTHS
        # The lengths are written last: without them the directory cannot be opened.
        lengths.unlink(missing_ok=True)
        counts = []
        with open(values, "wb") as file:
            for row in rows:
                values_of_row = cls.of([row]).values.astype("<i4")
                file.write(values_of_row.tobytes())
                counts.append(len(values_of_row))
        with replacing_file(lengths) as partial:
            np.save(partial, np.array(counts, "int64"))
        return cls.open(directory)

    @classmethod
    def open(cls, directory: Path) -> Ragged:
        """Opens the files of `write`. The values stay on disk: a corpus may be larger than the memory.

        Raises:
            SequenceDataError: the directory does not have the files of `write`.
        """
        values, lengths = pathlib.Path(directory) / _VALUES, pathlib.Path(directory) / _LENGTHS
        if not values.is_file() or not lengths.is_file():
            raise SequenceDataError(f"'{directory}' holds no sequences: {_VALUES} and {_LENGTHS} are expected.")
        counts = np.load(lengths)
        if values.stat().st_size != 4 * counts.sum():
            raise SequenceDataError(f"'{values}' has {values.stat().st_size} bytes, expected {4 * counts.sum()}.")
        # Empty files cannot be mapped.
        return cls(np.memmap(values, "<i4", "r") if counts.sum() else np.zeros(0, "int32"), counts)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, row: int) -> np.ndarray:
        return self.values[self.starts[row] : self.starts[row] + self.lengths[row]]

    def cut(self, first: int = 0, last: int = 0) -> Ragged:
        """Removes the `first` and the `last` tokens of each row; rows with fewer tokens become empty."""
        lengths = np.maximum(self.lengths - first - last, 0)
        return Ragged(self.values, lengths, np.where(lengths > 0, self.starts + first, self.starts))

    def padded(self, rows: ArrayLike, length: int, padding: int = 0) -> np.ndarray:
        """Returns rows as int32 `(rows, length)`, padded with `padding` or truncated."""
        rows = np.asarray(rows, "int64")
        real = self.mask(rows, length)
        result = np.full(real.shape, padding, "int32")
        indices = self.starts[rows, None] + np.arange(length)
        result[real] = self.values[indices[real]]
        return result

    def mask(self, rows: ArrayLike, length: int) -> np.ndarray:
        """Returns the padding mask of `padded`, boolean `(rows, length)`, True = a token of the row."""
        return np.arange(length) < self.lengths[np.asarray(rows, "int64"), None]
