"""OpenVINO IR from ONNX files."""

from __future__ import annotations

import itertools
import pathlib
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from keras_transformer.export.bundle.metadata import file_entries
from keras_transformer.export.errors import ConversionError, ExportError, UnsupportedOpError
from keras_transformer.export.openvino.library import NAME, SUFFIX, openvino
from keras_transformer.export.remedies import Remedy

if TYPE_CHECKING:
    from keras_transformer.export.data.export_spec import ExportSpec

# Where OpenVINO's programs look for what describes a model.
_METADATA = "model_info"
_UNKNOWN = re.compile(r"No conversion rule found for operations: (.+)")
# A layer that OpenVINO named after a type and a number, which goes on from one conversion to the next.
_NUMBERED = re.compile(r'(<layer id="\d+" name="[A-Z][A-Za-z0-9]*_)\d+(" type="(?!Parameter|Result))')


def convert(sources: Mapping[str, str], spec: ExportSpec, directory: pathlib.Path) -> dict[str, str]:
    """Writes an IR beside each ONNX file: `model.xml` with the graph, and `model.bin` with the weights as the file has them.

    Args:
        sources: dict of signature name to path of the ONNX file, relative to `directory`.
        spec: the `ExportSpec`.
        directory: folder of the files.

    Returns:
        Dict of signature name to path of the `.xml` file, relative to `directory`.

    Raises:
        UnsupportedOpError: OpenVINO has no counterpart of an operator.
        ConversionError: its converter fails for another reason.
        MissingLibraryError: OpenVINO is not installed.
    """
    library, files = openvino(), {}
    core, entries = library.Core(), file_entries(spec.metadata)
    for name in spec.names(NAME):
        files[name] = str(pathlib.PurePosixPath(sources[name]).with_suffix(SUFFIX))
        try:
            model = core.read_model(directory / sources[name])
        except RuntimeError as error:
            raise _typed(error, directory / sources[name], spec) from error
        for key, text in entries.items():
            model.set_rt_info(text, [_METADATA, key])
        library.save_model(model, directory / files[name], compress_to_fp16=False)
        _number_names_from_one(directory / files[name])
    return files


def _typed(error: RuntimeError, path: pathlib.Path, spec: ExportSpec) -> ExportError:
    """The error of OpenVINO's converter on an ONNX file, with the layers of the operators that it does not have."""
    found = _UNKNOWN.search(str(error))
    if found is None:
        return ConversionError(NAME, str(error).strip().splitlines()[-1].lstrip("- "), remedy=Remedy.FORMAT)
    from keras_transformer.export.onnx.graph import all_nodes
    from keras_transformer.export.onnx.weights.files import read

    names = {node.op_type: node.name or "" for node in all_nodes(read(path).graph)}
    # As in "com.microsoft.NGramRepeatBlock" and "Unique-18".
    ops = [each.rpartition(".")[2].partition("-")[0] for each in found[1].split(", ")]
    (op, layer), *others = ((each, spec.locate(each, names.get(each, ""))) for each in ops)
    remedy = Remedy.STANDARD if "com.microsoft" in found[1] else Remedy.FORMAT
    return UnsupportedOpError(NAME, op, layer, others, remedy=remedy)


def _number_names_from_one(path: pathlib.Path) -> None:
    """Lets an export give the same bytes whatever the process has converted before."""
    numbers = itertools.count(1)
    text = path.read_text(encoding="utf-8")
    path.write_text(_NUMBERED.sub(lambda found: f"{found[1]}{next(numbers)}{found[2]}", text), encoding="utf-8")
