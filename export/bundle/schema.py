"""The JSON schema of `manifest.json`."""

import json
import pathlib
from typing import Any

PATH = pathlib.Path(__file__).with_name("manifest.schema.json")


def manifest_schema() -> dict[str, Any]:
    """The JSON schema, draft 2020-12, that the manifest of every bundle of this version satisfies.

    Returns:
        dict.

    Example:

    >>> manifest_schema()["properties"]["schema"]["const"]
    1
    """
    return json.loads(PATH.read_text(encoding="utf-8"))
