"""The operators that ONNX Runtime needs for a bundle, as the configuration file of a build without the others."""

from __future__ import annotations

import importlib
import pathlib
import tempfile
from collections.abc import Iterable
from typing import Any

from keras_transformer.export.bundle.manifest import read_manifest
from keras_transformer.export.errors import ConversionError, MissingLibraryError
from keras_transformer.export.runtime.libraries import ONNX
from keras_transformer.utils.errors import library_exceptions
from keras_transformer.utils.types import Path

_TOOLS = "onnxruntime.tools.ort_format_model"
# Its kernels are of one processor, so that it is left out where the runtime is to run anywhere.
_OF_ONE_PROCESSOR = ["NchwcTransformer"]


def required_operators(bundle: Path, *, types: bool = True) -> str:
    """The configuration file of a reduced build of ONNX Runtime for a bundle.

    A build with `--include_ops_by_config FILE --enable_reduced_operator_type_support` has these operators only. They are
    those of every graph, as it is in its file and as ONNX Runtime optimizes it. The runtime's own tools extract them.

    Args:
        bundle: path of a bundle with ONNX files, or of one of several files `.onnx`.
        types: bool. Whether the types of each operator are written too, so that kernels of others are left out.

    Returns:
        The content of the file.

    Raises:
        InvalidBundleError: there is no such bundle, or it has no ONNX files.
        MissingLibraryError: ONNX Runtime is not installed.
        ConversionError: ONNX Runtime cannot load a graph, or convert it: those of more than 2 GB.

    Example:

    >>> import keras
    >>> from keras_transformer.export import export
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    >>> report = export(model, "/tmp/keras_transformer_doctest", formats=["onnx"])
    >>> "MatMul" in required_operators("/tmp/keras_transformer_doctest")
    True
    """
    names, paths = _files(pathlib.Path(bundle))
    with tempfile.TemporaryDirectory() as folder:
        converted = [each for path in paths for each in _converted(path, pathlib.Path(folder))]
        operators, of_types = _extracted(converted, types)
    lines = [f"# Operators of {name}" for name in names]
    for domain, opsets in sorted(operators.items()):
        for opset, found in sorted(opsets.items()):
            entries = [
                name + ((of_types.get_config_entry(domain, name) or "") if types else "") for name in sorted(found)
            ]
            lines.append(f"{domain};{opset};{','.join(entries)}")
    return "\n".join(lines) + "\n"


def _files(bundle: pathlib.Path) -> tuple[list[str], list[pathlib.Path]]:
    if bundle.is_file():
        return [bundle.name], [bundle]
    names = sorted(read_manifest(bundle).artifact(ONNX).paths)
    return names, [bundle / name for name in names]


def _converted(path: pathlib.Path, folder: pathlib.Path) -> list[pathlib.Path]:
    """A graph in ONNX Runtime's own format: as it is, and optimized."""
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingLibraryError("listing operators", "onnxruntime") from error
    levels = onnxruntime.GraphOptimizationLevel
    found = []
    for name, level in (("plain", levels.ORT_DISABLE_ALL), ("optimized", levels.ORT_ENABLE_ALL)):
        target = folder / f"{path.stem}.{len(list(folder.iterdir()))}.{name}.ort"
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.graph_optimization_level = level
        options.optimized_model_filepath = str(target)
        options.add_session_config_entry("session.save_model_format", "ORT")
        try:
            onnxruntime.InferenceSession(
                str(path), options, providers=["CPUExecutionProvider"], disabled_optimizers=_OF_ONE_PROCESSOR
            )
        except library_exceptions() as error:
            raise ConversionError(ONNX, f"'{path.name}' cannot be converted: {error}") from error
        found.append(target)
    return found


def _extracted(paths: Iterable[pathlib.Path], types: bool) -> tuple[dict[str, dict[int, set[str]]], Any]:
    """The operators by domain and version, and what knows their types."""
    importlib.import_module(_TOOLS)  # Makes its own modules importable.
    processor = importlib.import_module(f"{_TOOLS}.ort_model_processor").OrtFormatModelProcessor
    of_types = importlib.import_module(f"{_TOOLS}.operator_type_usage_processors").OperatorTypeUsageManager()
    operators: dict[str, dict[int, set[str]]] = {}
    for path in paths:
        processor(str(path), operators, of_types if types else None).process()
    return operators, of_types
