"""The own metadata of TFLite files: a description, and buffers by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_transformer.export.bundle.metadata import DESCRIPTION, file_entries, producer
from keras_transformer.export.tflite.graph import add_buffer
from keras_transformer.export.tflite.tree import schema

_PRODUCER = "producer"


def describe(model: Any, metadata: Mapping[str, Any]) -> None:
    """Writes metadata into a model: its description, and a buffer for each entry, in UTF-8.

    Args:
        model: `ModelT`, changed in place.
        metadata: dict of JSON values; each is a buffer of that name, beside `producer`.
    """
    model.description = metadata.get(DESCRIPTION) or producer()
    for name, text in {_PRODUCER: producer(), **file_entries(dict(metadata))}.items():
        add_metadata(model, name, text.encode())


def add_metadata(model: Any, name: str, content: bytes) -> None:
    """Adds a buffer of metadata.

    Args:
        model: `ModelT`, changed in place.
        name: name of the entry.
        content: its bytes.
    """
    entry = schema().MetadataT()
    entry.name, entry.buffer = name, add_buffer(model, np.frombuffer(content, "uint8"))
    model.metadata = [*(model.metadata or ()), entry]


def read_metadata(model: Any) -> dict[str, bytes]:
    """The entries of a model.

    Args:
        model: `ModelT`.

    Returns:
        Dict of name to bytes.
    """
    entries = model.metadata or ()
    return {each.name.decode(): bytes(np.asarray(model.buffers[each.buffer].data, "uint8")) for each in entries}
