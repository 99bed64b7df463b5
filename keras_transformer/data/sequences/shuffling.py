"""Shuffling of streams with a buffer."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np

Item = TypeVar("Item")


def shuffle_buffer(items: Iterable[Item], buffer_size: int, seed: int | Sequence[int] = 0) -> Iterator[Item]:
    """Yields items in random order from a buffer of `buffer_size` items; each new item replaces the one that is yielded.

    An item can move forward by at most `buffer_size` positions, and back without limit. Equal seeds and items give equal
    orders. If the ids fit on disk, `Ragged.write` and `bucket_batches` shuffle all of them instead.

    Args:
        items: iterable.
        buffer_size: int >= 1. 1 keeps the order.
        seed: int >= 0, or a sequence of them: `(seed, epoch)` changes the order in every epoch.

    Yields:
        The items, each once.

    Raises:
        ValueError: `buffer_size` is below 1.

    Example:

    >>> order = list(shuffle_buffer(range(8), 4, seed=1))
    >>> sorted(order) == list(range(8)), order == list(range(8))
    (True, False)
    """
    if buffer_size < 1:
        raise ValueError(f"buffer_size must be at least 1. Received: {buffer_size}")
    return _shuffled(items, buffer_size, np.random.default_rng(seed))


def _shuffled(items, buffer_size, random):
    buffer = []
    for item in items:
        if len(buffer) < buffer_size:
            buffer.append(item)
            continue
        index = int(random.integers(buffer_size))
        yield buffer[index]
        buffer[index] = item
    for index in random.permutation(len(buffer)):
        yield buffer[index]
