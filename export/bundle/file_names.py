"""The names that inputs and outputs have in the files of each format. Read without TensorFlow or Keras."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from keras_transformer.export.bundle.manifest import signature_specs
from keras_transformer.export.runtime.libraries import ONNX
from keras_transformer.export.spec.graph_names import output_names

if TYPE_CHECKING:
    import numpy as np

    from keras_transformer.export.format import Format
    from keras_transformer.export.runtime.runtime import Runtime
    from keras_transformer.export.spec.export_spec import ExportSpec


class FileNames(NamedTuple):
    """Names of one signature in the file of one format.

    Args:
        inputs: dict of input name to the name in the file.
        outputs: dict of output name to the name in the file.
    """

    inputs: Mapping[str, str]
    outputs: Mapping[str, str]


def names_record(spec: ExportSpec, format: Format) -> dict[str, dict[str, dict[str, str]]]:
    """The manifest's record of the names in the files that a format writes.

    Args:
        spec: the `ExportSpec`, traced.
        format: the `Format`.

    Returns:
        Dict of signature name to `{"inputs": ..., "outputs": ...}`, each a dict of name to the name in the file.
    """
    record = {}
    for key in spec.names(format.name):
        inputs, outputs = (
            [each.name for each in side] for side in (spec.signatures[key].inputs, spec.signatures[key].outputs)
        )
        record[key] = {"inputs": {name: name for name in inputs}, "outputs": format.output_names(inputs, outputs)}
    return record


def file_names(manifest: dict[str, Any], format: str, signature: str) -> FileNames:
    """The names of one signature in the file of one format.

    Manifests of earlier versions do not record them: only outputs in ONNX files with the name of an input had other names.

    Args:
        manifest: the manifest of the bundle.
        format: name of the format.
        signature: name of the signature.

    Returns:
        `FileNames`.
    """
    record = manifest["artifacts"][format].get("names", {}).get(signature)
    if record is not None:
        return FileNames(record["inputs"], record["outputs"])
    inputs, outputs = ([each.name for each in side] for side in signature_specs(manifest, signature))
    same = {name: name for name in outputs}
    return FileNames({name: name for name in inputs}, output_names(inputs, outputs) if format == ONNX else same)


def named_runtime(runtime: Runtime, names: FileNames) -> Runtime:
    """A runtime that is called with the names of a signature, and calls the file with those of the file.

    Args:
        runtime: `Runtime` under the names of the file.
        names: `FileNames`.
    """
    if all(key == value for side in names for key, value in side.items()):
        return runtime

    def renamed(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        results = runtime({names.inputs[name]: array for name, array in arrays.items()})
        return {name: results[label] for name, label in names.outputs.items()}

    return renamed
