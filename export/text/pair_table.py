"""A map of pairs of ints to ints as three flat arrays, read with one addition, one comparison and gathers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

_CHUNK = 4096


class PairTable:
    """Maps `(row, column)` to a value: at `slot = starts[row] + column`, `owners[slot] == row` if the pair is known.

    The rows lie in each other's gaps (row displacement).

    Args:
        values: dict of `(row, column)` to value, all non-negative.
        rows, columns: numbers of rows and columns.

    Attributes:
        starts: int32 `(rows,)`.
        owners: int32 `(S,)`, -1 for gaps.
        values: int32 `(S,)`.

    Example:

    >>> table = PairTable({(0, 2): 7, (1, 2): 8}, 2, 3)
    >>> slot = table.starts[1] + 2
    >>> int(table.owners[slot]), int(table.values[slot])
    (1, 8)

    Reference:
        Tarjan and Yao 1979, "Storing a sparse table".
    """

    def __init__(self, values: Mapping[tuple[int, int], int], rows: int, columns: int) -> None:
        pairs = np.array(list(values), "int64").reshape(-1, 2)
        given = np.fromiter(values.values(), "int64", len(values))
        order = np.lexsort((pairs[:, 1], pairs[:, 0]))
        pairs, given = pairs[order], given[order]
        found, first = np.unique(pairs[:, 0], return_index=True)
        parts = np.split(pairs[:, 1], first[1:]) if len(found) else []
        self.starts = np.zeros(rows, "int32")
        self._used = np.zeros(2 * len(given) + 2 * columns + 1, bool)
        self._free = 0
        for number in sorted(range(len(parts)), key=lambda number: -len(parts[number])):
            start = self._place(parts[number])
            self.starts[found[number]] = start
            self._used[start + parts[number]] = True
        size = int(self.starts.max(initial=0)) + columns
        self.owners, self.values = np.full(size, -1, "int32"), np.zeros(size, "int32")
        slots = self.starts[pairs[:, 0]] + pairs[:, 1]
        self.owners[slots], self.values[slots] = pairs[:, 0], given

    def _place(self, columns: np.ndarray) -> int:
        """The first start at which a row meets gaps only."""
        while self._used[self._free]:
            self._free += 1
            self._reserve(self._free + 1)
        start = max(self._free - int(columns[0]), 0)
        while True:
            self._reserve(start + _CHUNK + int(columns[-1]) + 1)
            candidates = start + np.flatnonzero(~self._used[start + columns[0] : start + columns[0] + _CHUNK])
            for column in columns[1:]:
                candidates = candidates[~self._used[candidates + column]]
            if len(candidates):
                return int(candidates[0])
            start += _CHUNK

    def _reserve(self, size: int) -> None:
        if size > len(self._used):
            self._used = np.append(self._used, np.zeros(size, bool))
