"""Safe reading of JSON files from other sources."""

from __future__ import annotations

import json
from typing import Any

from keras_transformer.utils.types import Path

# The largest such files: older settings of Whisper with mel filters, and indices of many tensors.
MAX_BYTES = 2**28
_NAMES: dict[type, str] = {dict: "object", list: "list"}


def parse_json(text: str) -> Any:
    """Returns the content of JSON whose texts can be encoded.

    Args:
        text: str.

    Returns:
        The content.

    Raises:
        ValueError: it is no JSON, or has half of a surrogate pair, which no encoding of Unicode has.
        RecursionError: it is nested too deeply.

    Example:

    >>> parse_json('["\\\\u00e9"]')
    ['é']
    """
    content = json.loads(text)
    if "\\ud" in text.lower():
        json.dumps(content, ensure_ascii=False).encode("utf-8")
    return content


def read_json(path: Path, error: type[Exception], kind: type = dict) -> Any:
    """Returns the content of a JSON file.

    Args:
        path: str or path.
        error: class of the exception to raise.
        kind: dict or list. The expected type.

    Returns:
        An object of that type.

    Raises:
        error: the file cannot be read, is too large, is not JSON, or has another type.

    Example:

    >>> with open("settings.json", "w") as file:
    ...     _ = file.write('{"size": 224}')
    >>> read_json("settings.json", ValueError)
    {'size': 224}
    """
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as problem:
        raise error(f"'{path}' cannot be read: {problem.strerror}.") from None
    if len(data) > MAX_BYTES:
        raise error(f"'{path}' is larger than {MAX_BYTES // 2**20} MiB.")
    try:
        content = parse_json(data.decode("utf-8"))
    except (ValueError, RecursionError) as problem:
        raise error(f"'{path}' is not JSON: {str(problem)[:80]}.") from None
    if not isinstance(content, kind):
        raise error(f"'{path}' is not a JSON {_NAMES[kind]}.")
    return content
