"""The sides of a grid of patches, as positions take them."""

from __future__ import annotations


def grid_sides(grid_size: int | tuple[int, ...]) -> tuple[int, ...]:
    """Returns rows and columns.

    Args:
        grid_size: int or pair of ints >= 1.

    Raises:
        ValueError: another number of sides, or one below 1.
    """
    sides = (grid_size, grid_size) if isinstance(grid_size, int) else tuple(grid_size)
    if len(sides) != 2 or min(sides) < 1:
        raise ValueError(f"grid_size must be one or two integers of at least 1. Received: {grid_size!r}")
    return sides
