"""Pairs of symbols that are neighbors in a token: no token reaches over another pair, so that texts are cut there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, pairwise

from keras_transformer.export.text.pair_table import PairTable
from keras_transformer.export.text.steps import before, gather
from keras_transformer.utils.types import Tensor


class Neighbors:
    """Whether a symbol and the one before it are neighbors in a token.

    Args:
        tokens: sequences of symbols.
        size: number of symbols.

    Call arguments:
        symbols: int32 `(C,)`.

    Returns:
        bool `(C,)`; before the first symbol, the symbol 0 counts.
    """

    def __init__(self, tokens: Iterable[Sequence[int]], size: int) -> None:
        self._table = PairTable(dict.fromkeys(chain.from_iterable(map(pairwise, tokens)), 1), size, size)

    def __call__(self, symbols: Tensor) -> Tensor:
        left = before(symbols, 0)
        return gather(self._table.owners, gather(self._table.starts, left) + symbols) == left
