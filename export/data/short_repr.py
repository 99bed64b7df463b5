"""The text of a record with the fields alone that differ from their defaults."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Protocol

_LONGEST = 80


class _Dataclass(Protocol):
    """An instance of a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]


def short_repr(record: _Dataclass, **defaults: object) -> str:
    """The call that makes a dataclass instance, without what it has by default.

    Args:
        record: an instance of a dataclass. Fields of `repr=False` and long values are abbreviated.
        defaults: default values by field, where they are not those of the class.

    Example:

    >>> @dataclasses.dataclass
    ... class Size:
    ...     width: int = 1
    ...     height: int = 1
    >>> short_repr(Size(height=2))
    'Size(height=2)'
    """
    parts: list[str] = []
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if not _equals(value, defaults.get(field.name, field.default)):
            parts.append(f"{field.name}={short_value(value) if field.repr else '...'}")
    return f"{type(record).__name__}({', '.join(parts)})"


def short_value(value: object) -> str:
    """The `repr` of a value, abbreviated where it is long.

    Example:

    >>> short_value("a"), short_value([0] * 100)
    ("'a'", '...')
    """
    text = repr(value)
    return text if len(text) <= _LONGEST else "..."


def _equals(value: object, default: object) -> bool:
    """Whether a value is the default; arrays and the like are only where they are the same object."""
    return value is default or (isinstance(value, (int, float, str, tuple)) and value == default)
