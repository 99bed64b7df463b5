"""The size of a stack of blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from keras_transformer.utils.serialization import choice


class Size(NamedTuple):
    """Size of a stack of blocks.

    Attributes:
        num_layers: number of blocks; in an encoder-decoder, of each side.
        hidden_dim: width of the tokens D.
        num_heads: attention heads N, of width `hidden_dim // num_heads`.
        intermediate_dim: width of the hidden layer of the feed-forward.

    Example:

    >>> Size(num_layers=2, hidden_dim=16, num_heads=2, intermediate_dim=32).hidden_dim
    16
    """

    num_layers: int
    hidden_dim: int
    num_heads: int
    intermediate_dim: int


def get_size(size: str | Size, sizes: Mapping[str, Size]) -> Size:
    """A `Size` from a name in `sizes`, a `Size`, or four integers.

    Raises:
        ValueError: unknown name, or heads that do not divide the width.
    """
    found = choice(size, sizes, argument="size") if isinstance(size, str) else Size(*size)
    if found.hidden_dim % found.num_heads:
        raise ValueError(f"num_heads must divide hidden_dim. Received: {found}")
    return found
