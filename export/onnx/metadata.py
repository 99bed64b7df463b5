"""The own metadata of ONNX files: producer, description and entries by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from keras_transformer.export.bundle.metadata import DESCRIPTION, file_entries
from keras_transformer.export.data.manifest import PRODUCER
from keras_transformer.version import __version__

if TYPE_CHECKING:
    import onnx


def describe(model: onnx.ModelProto, metadata: Mapping[str, Any]) -> None:
    """Writes metadata into a model: `producer_name`, `producer_version`, `doc_string`, `metadata_props`.

    Args:
        model: `onnx.ModelProto`, changed in place.
        metadata: dict of JSON values; each is an entry of `metadata_props`.
    """
    model.producer_name, model.producer_version = PRODUCER, __version__
    model.doc_string = metadata.get(DESCRIPTION, "")
    del model.metadata_props[:]
    for name, text in file_entries(dict(metadata)).items():
        model.metadata_props.add(key=name, value=text)
