"""Products of all pairs of tokens in a chunk with a decay per channel, by matrix products and without overflow.

In the shapes, C is the chunk size, a power of two, and n the number of chunks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from keras import ops

from keras_transformer.utils.types import Tensor


class ChannelPairs(NamedTuple):
    """The result of `channel_pairs`.

    Attributes:
        products: list over the columns of lists over the rows of `(n · B, N, C, C)`: for tokens t and s of a chunk,
            `Σ_m row_tm (Π_{s < i < t} α_im) column_sm` if s is before t, else 0.
        before: `(n · B, N, C, M)`: `Π_{i < t} α_i` over the tokens of the chunk before each.
        after: `(n · B, N, C, M)`: `Π_{i > t} α_i` over the tokens of the chunk after each.
        whole: `(n · B, N, 1, M)`: the product over the chunk.
    """

    products: list[list[Tensor]]
    before: Tensor
    after: Tensor
    whole: Tensor


def channel_pairs(rows: Sequence[Tensor], columns: Sequence[Tensor], decay: Tensor) -> ChannelPairs:
    """Returns the products of pairs of tokens for a decay that depends on the channel and the token.

    Blocks of tokens double in size, `log₂ C` times. Between the halves of a block, the decay is a factor of the later
    token, since the start of its half, and one of the earlier token, until the end of its half: both are products of
    α <= 1, which neither overflow nor cancel. Time grows with `C · M · (C + log C)` for each head and chunk.

    Args:
        rows: float `(n · B, N, C, M)` each; N, C and M are static.
        columns: float `(n · B, N, C, M)` each.
        decay: float `(n · B, N, C, M)`: α in [0, 1].

    Example:

    >>> import numpy as np
    >>> column = lambda *x: np.array(x, "float32").reshape(1, 1, -1, 1)
    >>> pairs = channel_pairs([column(1, 1, 1, 1)], [column(2, 3, 5, 7)], column(0.5, 0.5, 0.25, 1))
    >>> pairs.products[0][0][0, 0].numpy().tolist()
    [[0.0, 0.0, 0.0, 0.0], [2.0, 0.0, 0.0, 0.0], [1.0, 3.0, 0.0, 0.0], [0.25, 0.75, 5.0, 0.0]]

    Reference: Yang et al., Gated Linear Attention, arXiv 2312.06635, section 4.3 (two levels of blocks, where these are
    `log₂ C`).
    """
    heads, size, width = decay.shape[1:]
    kinds = len(rows)
    interleaved = ops.stack(rows, axis=3)  # (n · B, N, C, kinds, M)
    before = after = ops.ones_like(decay)
    whole, half = ops.reshape(decay, (-1, heads * size, 1, width)), 1
    matrices = [ops.zeros_like(interleaved[:, :, :, :, :1]) for _ in columns]
    while half < size:
        blocks = heads * size // (2 * half)
        before, after = (ops.reshape(x, (-1, blocks, 2 * half, width)) for x in (before, after))
        later = ops.reshape(interleaved, (-1, blocks, 2 * half, kinds, width))[:, :, half:]
        later = ops.reshape(later * ops.expand_dims(before[:, :, half:], 3), (-1, blocks, half * kinds, width))
        earlier = (ops.reshape(x, (-1, blocks, 2 * half, width))[:, :, :half] * after[:, :, :half] for x in columns)
        corners = [ops.matmul(later, ops.transpose(x, (0, 1, 3, 2))) for x in earlier]
        matrices = [_joined(*pair) for pair in zip(matrices, corners, strict=True)]
        whole = ops.reshape(whole, (-1, blocks, 2, width))
        first, second = whole[:, :, :1], whole[:, :, 1:]
        before = ops.concatenate([before[:, :, :half], before[:, :, half:] * first], axis=2)
        after = ops.concatenate([after[:, :, :half] * second, after[:, :, half:]], axis=2)
        whole, half = first * second, 2 * half
    matrices = [ops.reshape(x, (-1, heads, size, kinds, size)) for x in matrices]
    products = [[x[:, :, :, kind] for kind in range(kinds)] for x in matrices]
    before, after = (ops.reshape(x, (-1, heads, size, width)) for x in (before, after))
    return ChannelPairs(products, before, after, whole)


def _joined(diagonal, corner):
    """Returns `[[D_0, 0], [corner, D_1]]` for each two consecutive blocks of the diagonal, which are the smaller ones."""
    blocks, height, width = corner.shape[1:]
    diagonal = ops.reshape(diagonal, (-1, blocks, 2 * height, width))
    upper = ops.concatenate([diagonal[:, :, :height], ops.zeros_like(corner)], axis=3)
    return ops.concatenate([upper, ops.concatenate([corner, diagonal[:, :, height:]], axis=3)], axis=2)
