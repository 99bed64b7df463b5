"""What describes a model in the manifest and in the files themselves."""

from __future__ import annotations

import json
from collections.abc import Iterable

from keras_transformer.export.data.manifest import PRODUCER
from keras_transformer.export.errors import ExportError
from keras_transformer.utils.types import JsonObject
from keras_transformer.version import __version__

DESCRIPTION, CLASS_NAMES, INPUTS = "description", "class_names", "inputs"
_INPUT_FIELDS = ("description", "range", "mean", "std")
# Names of entries that converters and other tools write into TFLite files, and the producer.
_RESERVED = {
    "producer",
    "min_runtime_version",
    "CONVERSION_METADATA",
    "TFLITE_METADATA",
    "reduced_precision_support",
    "model_version",
}


def check_metadata(metadata: JsonObject | None) -> None:
    """Refuses metadata that is no dict of JSON values, or whose known keys have values of other types.

    Args:
        metadata: dict. "description" is a str, "class_names" a list of str, and "inputs" a dict of input name to a dict
            with any of "description", "range" (the least and the largest value before normalization), "mean" and "std"
            (a number, or a list of one for each channel: the model takes `(value - mean) / std`). Other keys are free.

    Raises:
        ExportError: names the key.
    """
    if metadata is not None and not isinstance(metadata, dict):
        raise ExportError(f"metadata must be a dict of JSON values. Received: {type(metadata).__name__}")
    metadata = metadata or {}
    try:
        json.dumps(metadata, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ExportError(f"metadata cannot be written as JSON: {error}") from error
    for name in metadata:
        if not isinstance(name, str) or not name or name in _RESERVED:
            raise ExportError(f"metadata must not have the key {name!r}")
    if not isinstance(metadata.get(DESCRIPTION, ""), str):
        raise ExportError(f"metadata['description'] must be a str. Received: {metadata[DESCRIPTION]!r}")
    classes = metadata.get(CLASS_NAMES, [])
    if not isinstance(classes, (list, tuple)) or not all(isinstance(each, str) for each in classes):
        raise ExportError(f"metadata['class_names'] must be a list of str. Received: {classes!r}")
    inputs = metadata.get(INPUTS, {})
    if not isinstance(inputs, dict):
        raise ExportError(f"metadata['inputs'] must be a dict of input name to dict. Received: {inputs!r}")
    for name, record in inputs.items():
        _check_input(name, record)


def check_input_names(metadata: JsonObject, names: Iterable[str]) -> None:
    """Refuses descriptions of inputs that the model does not have.

    Args:
        metadata: dict, checked.
        names: names of the inputs of all signatures.

    Raises:
        ExportError: names the input.
    """
    known = list(dict.fromkeys(names))
    for name in metadata.get(INPUTS, {}):
        if name not in known:
            raise ExportError(f"metadata['inputs'] describes '{name}'; the inputs are {', '.join(known)}")


def file_entries(metadata: JsonObject) -> dict[str, str]:
    """The entries of a file's own metadata: str as it is, other values as JSON.

    Args:
        metadata: dict of JSON values.

    Returns:
        Dict of name to str.

    Example:

    >>> file_entries({"description": "Digits", "class_names": ["zero", "one"]})
    {'description': 'Digits', 'class_names': '["zero", "one"]'}
    """
    return {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, allow_nan=False)
        for name, value in metadata.items()
    }


def producer() -> str:
    """Name and version of the writer of the files."""
    return f"{PRODUCER} {__version__}"


def _check_input(name: str, record: object) -> None:
    where = f"metadata['inputs'][{name!r}]"
    if not isinstance(record, dict) or set(record) - set(_INPUT_FIELDS):
        raise ExportError(f"{where} must be a dict of {', '.join(_INPUT_FIELDS)}. Received: {record!r}")
    if not isinstance(record.get("description", ""), str):
        raise ExportError(f"{where}['description'] must be a str. Received: {record['description']!r}")
    span = record.get("range", [0, 1])
    if not _is_numbers(span) or len(span) != 2 or not span[0] < span[1]:
        raise ExportError(f"{where}['range'] must be [least, largest]. Received: {span!r}")
    for field in ("mean", "std"):
        value = record.get(field, 1)
        if not _is_number(value) and not (_is_numbers(value) and len(value)):
            raise ExportError(f"{where}['{field}'] must be a number or a list of numbers. Received: {value!r}")
    spread = record.get("std", 1)
    if 0 in (spread if isinstance(spread, (list, tuple)) else [spread]):
        raise ExportError(f"{where}['std'] must not be 0. Received: {spread!r}")


def _is_numbers(value: object) -> bool:
    return isinstance(value, (list, tuple)) and all(map(_is_number, value))


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
