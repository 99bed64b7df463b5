"""JSON from clients, read within limits."""

from __future__ import annotations

from typing import Any

import orjson

MAX_DEPTH = 64


class InvalidJsonError(ValueError):
    """The text is not JSON, or is nested too deeply."""


def parse_json(body: bytes | memoryview | str, max_depth: int | None = MAX_DEPTH) -> Any:
    """Parses JSON as RFC 8259 defines it: no NaN, no infinity, no number beyond float64, and valid UTF-8.

    Integers that do not fit 64 bits become floats, so that a check for an integer refuses them.

    Args:
        body: bytes or str.
        max_depth: int or None: how deep lists and objects may be nested, so that code that walks through them needs no limit
            of its own. None for that of the parser, 1,024, where nobody does.

    Returns:
        The value.

    Raises:
        InvalidJsonError: not JSON, or nested too deeply.

    Example:

    >>> parse_json(b'{"a": [1, 2.5]}')
    {'a': [1, 2.5]}
    >>> parse_json(b"[[1]]", max_depth=1)
    Traceback (most recent call last):
    ...
    keras_transformer.utils.http.json_bodies.InvalidJsonError: lists and objects are nested deeper than 1 levels
    """
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidJsonError(str(error)[:200]) from None
    if max_depth is not None and _is_deeper(value, max_depth):
        raise InvalidJsonError(f"lists and objects are nested deeper than {max_depth} levels")
    return value


def _is_deeper(value: object, limit: int) -> bool:
    level = [value]
    for _ in range(limit + 1):
        containers = [each for each in level if isinstance(each, (dict, list))]
        if not containers:
            return False
        level = [child for each in containers for child in (each.values() if isinstance(each, dict) else each)]
    return True
