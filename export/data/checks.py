"""Checks of the fields of records that were read from JSON, which may be damaged or hostile."""

from __future__ import annotations

from typing import TypeGuard

from keras_transformer.utils.types import JsonObject

_LARGEST = 2**40


class IncompleteError(ValueError):
    """A field of a record is missing or wrong."""


def is_count(value: object) -> TypeGuard[int]:
    """Whether a value is an integer of 0 or more that a size can be."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LARGEST


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value is a number, which True is not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_object(value: object) -> TypeGuard[dict[str, object]]:
    """Whether a value is a JSON object."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[object]]:
    """Whether a value is a JSON array."""
    return isinstance(value, list)


def is_tuple(value: object) -> TypeGuard[tuple[object, ...]]:
    """Whether a value is what a record has of a JSON array."""
    return isinstance(value, tuple)


def is_names(value: object) -> TypeGuard[list[str]]:
    """Whether a value is a list of texts."""
    return is_list(value) and all(isinstance(each, str) for each in value)


def json_object(value: object) -> JsonObject | None:
    """A value that must be a JSON object to be used, whose own values are not checked; None for any other."""
    return value if is_object(value) else None


def shown(value: object, limit: int = 80) -> str:
    """A value of a record as one short printable line, for an error.

    Example:

    >>> shown("serve\\n"), shown([1, 2, 3], limit=6)
    ('serve\\\\n', '[1,...')
    """
    text = ascii(value)[1:-1] if isinstance(value, str) and not value.isprintable() else str(value)
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
