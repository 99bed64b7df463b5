"""Sizes of axes: products of numbers and names as text, `2*batch*length`; a plain number is an int."""

import math


def multiply(*sizes):
    """The product of sizes, each an int or a text."""
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


def divide(size, by):
    """`size / by`, or None where that is not a product again."""
    number, names = _factors(size)
    divisor, gone = _factors(by)
    if divisor == 0 or number % divisor:
        return None
    for name in gone:
        if name not in names:
            return None
        names.remove(name)
    return multiply(number // divisor, *names)


def _factors(size):
    parts = str(size).split("*")
    numbers = [int(part) for part in parts if part.lstrip("-").isdigit()]
    return math.prod(numbers), [part for part in parts if not part.lstrip("-").isdigit()]
