"""The bytes of one constant in a file of a bundle."""

from typing import NamedTuple


class WeightBytes(NamedTuple):
    """A constant of a file.

    Args:
        name: its name in the file, or that of the operation that reads it where the file names constants by numbers.
        dtype: such as `"float32"` or `"int4"`.
        shape: sizes.
        size: bytes in the file.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    size: int
