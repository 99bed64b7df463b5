"""Many sequences of different lengths in one flat array."""

import itertools
from pathlib import Path

import numpy as np

from keras_transformer.data.errors import SequenceDataError
from keras_transformer.utils.atomic_write import replacing_file

_VALUES, _LENGTHS = "values.int32", "lengths.npy"


class Ragged:
    """Sequences of integers of different lengths: views into one flat array, in memory or mapped from a file.

    Row i is `values[starts[i] : starts[i] + lengths[i]]`. Cutting tokens off the ends of rows copies nothing.

    Args:
        values: integers `(n,)`; a `numpy.memmap` stays on disk.
        lengths: integers `(rows,)`, >= 0.
        starts: integers `(rows,)`, or None where the rows follow one another.

    Raises:
        SequenceDataError: the rows reach beyond `values`; an array is of the wrong shape or not of integers.

    Example:

    >>> rows = Ragged.of([[5, 6, 7], [8], [9, 10]])
    >>> rows.cut(first=1)[0], len(rows)
    (array([6, 7], dtype=int32), 3)
    >>> rows.padded([2, 0], length=4)
    array([[ 9, 10,  0,  0],
           [ 5,  6,  7,  0]], dtype=int32)
    """

    def __init__(self, values, lengths, starts=None):
        self.values = values if isinstance(values, np.ndarray) else np.asarray(values)
        self.lengths = np.asarray(lengths, "int64")
        self.starts = np.cumsum(self.lengths) - self.lengths if starts is None else np.asarray(starts, "int64")
        if self.values.ndim != 1 or not np.issubdtype(self.values.dtype, np.integer):
            raise SequenceDataError(
                f"Expected flat values of integers. Received: {self.values.dtype}, shape {self.values.shape}"
            )
        if self.lengths.ndim != 1 or self.lengths.shape != self.starts.shape:
            raise SequenceDataError(
                f"Expected one start and one length a row. Received: {self.starts.shape} and {self.lengths.shape}"
            )
        wrong = (self.lengths < 0) | (self.starts < 0) | (self.starts + self.lengths > len(self.values))
        if wrong.any():
            raise SequenceDataError(f"Row {int(np.argmax(wrong))} reaches beyond the {len(self.values)} values.")

    @classmethod
    def of(cls, rows):
        """A `Ragged` of any iterable of sequences of integers; a `Ragged` is returned as it is."""
        if isinstance(rows, cls):
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
    def write(cls, directory, rows):
        """Writes sequences to two files, one row in memory at a time, and opens them; what stood there is replaced.

        Args:
            directory: str or path. Is made.
            rows: iterable of sequences of integers that fit in int32.

        Returns:
            The `Ragged` that `open` gives.

        Example:

        >>> Ragged.write("tokens", (range(n) for n in (2, 0, 3)))[2].tolist()
        [0, 1, 2]
        """
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        values, lengths = directory / _VALUES, directory / _LENGTHS
        # Without lengths there is nothing to open: they are written last.
        lengths.unlink(missing_ok=True)
        counts = []
        with open(values, "wb") as file:
            for row in rows:
                row = cls.of([row]).values.astype("<i4")
                file.write(row.tobytes())
                counts.append(len(row))
        with replacing_file(lengths) as partial:
            np.save(partial, np.array(counts, "int64"))
        return cls.open(directory)

    @classmethod
    def open(cls, directory):
        """Opens what `write` wrote. The values stay on disk: a corpus may be larger than the memory.

        Raises:
            SequenceDataError: the directory does not hold what `write` wrote.
        """
        values, lengths = Path(directory) / _VALUES, Path(directory) / _LENGTHS
        if not values.is_file() or not lengths.is_file():
            raise SequenceDataError(f"'{directory}' holds no sequences: {_VALUES} and {_LENGTHS} are expected.")
        counts = np.load(lengths)
        if values.stat().st_size != 4 * counts.sum():
            raise SequenceDataError(f"'{values}' has {values.stat().st_size} bytes, expected {4 * counts.sum()}.")
        # An empty file cannot be mapped.
        return cls(np.memmap(values, "<i4", "r") if counts.sum() else np.zeros(0, "int32"), counts)

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, row):
        return self.values[self.starts[row] : self.starts[row] + self.lengths[row]]

    def cut(self, first=0, last=0):
        """Without the `first` and the `last` tokens of each row; a row that has fewer becomes empty."""
        lengths = np.maximum(self.lengths - first - last, 0)
        return Ragged(self.values, lengths, np.where(lengths > 0, self.starts + first, self.starts))

    def padded(self, rows, length, padding=0):
        """The named rows as int32 `(rows, length)`, filled up with `padding`; what is longer is cut off."""
        rows = np.asarray(rows, "int64")
        real = self.mask(rows, length)
        result = np.full(real.shape, padding, "int32")
        places = self.starts[rows, None] + np.arange(length)
        result[real] = self.values[places[real]]
        return result

    def mask(self, rows, length):
        """Boolean `(rows, length)`: True where `padded` holds a token of the row."""
        return np.arange(length) < self.lengths[np.asarray(rows, "int64"), None]
