"""Shuffling what is too large to be held whole."""

import numpy as np


def shuffle_buffer(items, buffer_size, seed=0):
    """Yields all items in another order, holding `buffer_size` of them: each new one takes the place of a random one.

    An item comes out at most `buffer_size` places before where it stood; how far behind is not bounded. The same seed and
    items give the same order. Where the ids fit on disk, `Ragged.write` and `bucket_batches` shuffle them all instead.

    Args:
        items: iterable.
        buffer_size: int >= 1. 1 keeps the order.
        seed: int >= 0, or a sequence of them: `(seed, epoch)` gives each epoch its own order.

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
        place = int(random.integers(buffer_size))
        yield buffer[place]
        buffer[place] = item
    for place in random.permutation(len(buffer)):
        yield buffer[place]
