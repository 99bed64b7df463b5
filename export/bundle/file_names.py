"""The names that inputs and outputs have in the files of each format. Read without TensorFlow or Keras."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keras_transformer.export.data.manifest_records import FileNames
from keras_transformer.export.graph.interface_names import output_names

if TYPE_CHECKING:
    from keras_transformer.export.data.export_spec import ExportSpec
    from keras_transformer.export.data.manifest import Manifest
    from keras_transformer.export.format import Format

# The format that renames outputs in bundles of earlier versions.
_ONNX = "onnx"


def names_record(spec: ExportSpec, format: Format) -> dict[str, FileNames]:
    """The names in the files that a format writes, for the manifest.

    Args:
        spec: the `ExportSpec` that the files are written from, traced.
        format: the `Format`.

    Returns:
        Dict of signature name to `FileNames`.
    """
    record = {}
    for key in spec.names(format.name):
        inputs, outputs = (
            [each.name for each in side] for side in (spec.signatures[key].inputs, spec.signatures[key].outputs)
        )
        record[key] = FileNames({name: name for name in inputs}, format.output_names(inputs, outputs))
    return record


def file_names(manifest: Manifest, format: str, signature: str) -> FileNames:
    """The names of one signature in the file of one format.

    Manifests of earlier versions do not record them: only outputs in ONNX files with the name of an input had other names.

    Args:
        manifest: the manifest of the bundle.
        format: name of the format.
        signature: name of the signature.

    Returns:
        `FileNames`.
    """
    found = manifest.artifact(format).names.get(signature)
    if found is not None:
        return found
    inputs, outputs = ([each.name for each in side] for side in manifest.signature(signature))
    same = {name: name for name in outputs}
    return FileNames({name: name for name in inputs}, output_names(inputs, outputs) if format == _ONNX else same)
