"""Symbolic sizes of axes: an int, or a product of numbers and names as text, such as `2*batch*length`."""

import math
from typing import TypeAlias

Size: TypeAlias = int | str


def multiply(*sizes: Size | None) -> Size:
    """Returns the product of sizes, each an int or a text."""
    number, names = 1, []
    for size in sizes:
        for factor in str(size).split("*"):
            if factor.lstrip("-").isdigit():
                number *= int(factor)
            else:
                names.append(factor)
    if not names:
        return number
    return "*".join([*([str(number)] if number != 1 else []), *sorted(names)])


def divide(size: Size, by: Size) -> Size | None:
    """Returns `size / by`, or None where that is not a product."""
    number, names = _factors(size)
    divisor, removed = _factors(by)
    if divisor == 0 or number % divisor:
        return None
    for name in removed:
        if name not in names:
            return None
        names.remove(name)
    return multiply(number // divisor, *names)


def _factors(size: Size) -> tuple[int, list[str]]:
    parts = str(size).split("*")
    numbers = [int(part) for part in parts if part.lstrip("-").isdigit()]
    return math.prod(numbers), [part for part in parts if not part.lstrip("-").isdigit()]
