"""JSON files that others have written, read with care."""

import json

# Nothing that is read so is larger: Whisper's older settings hold mel filters, an index names each tensor.
MAX_BYTES = 2**28
_NAMES = {dict: "object", list: "list"}


def read_json(path, error, kind=dict):
    """What a file holds.

    Args:
        path: str or path.
        error: class of the exceptions.
        kind: dict or list.

    Returns:
        An object of that kind.

    Raises:
        error: the file cannot be read, is too large, is not JSON, or holds something else.

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
        content = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as problem:
        raise error(f"'{path}' is not JSON: {str(problem)[:80]}.") from None
    if not isinstance(content, kind):
        raise error(f"'{path}' holds no JSON {_NAMES[kind]}.")
    return content
