"""Sizes of the caches of conversations, and of turns where each size is compiled."""

from __future__ import annotations

# Slots of the first cache of a conversation.
FEWEST_SLOTS = 256
# Numbers of tokens that a turn is padded to, where each number is compiled; and a multiple of the last for longer turns.
TURN_SIZES = (16, 64, 256, 1024)
_GROWTH = 2
# A step with another cache is compiled again, which takes longer than reading a few slots more.
_COMPILED_GROWTH = 4


def cache_size(length: int, max_length: int | None = None, is_compiled: bool = False) -> int:
    """Returns the number of slots for at least `length` tokens: one of few.

    Args:
        length: int >= 1.
        max_length: int or None. Maximum number of tokens of a sequence.
        is_compiled: bool. Whether each size is compiled; then there are fewer.

    Example:

    >>> [cache_size(length) for length in (1, 256, 257, 2000)], cache_size(2000, max_length=2020)
    ([256, 256, 512, 2048], 2020)
    >>> [cache_size(length, is_compiled=True) for length in (257, 2000)]
    [1024, 4096]
    """
    size = FEWEST_SLOTS
    while size < length:
        size *= _COMPILED_GROWTH if is_compiled else _GROWTH
    return max(length, min(size, max_length or size))


def turn_size(count: int, most: int | None = None) -> int:
    """Returns the number of tokens that `count` new tokens are padded to: `count` itself if there is no room for padding.

    Args:
        count: int >= 1.
        most: int or None. Number of tokens that the cache, or the model, has room for.

    Example:

    >>> turn_size(5), turn_size(65), turn_size(1025), turn_size(65, most=200)
    (16, 256, 2048, 65)
    """
    size = next((size for size in TURN_SIZES if size >= count), -(-count // TURN_SIZES[-1]) * TURN_SIZES[-1])
    return size if most is None or size <= most else count
