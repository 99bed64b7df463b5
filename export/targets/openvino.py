"""OpenVINO's plugin for Intel processors: ONNX files of fixed shapes."""

from __future__ import annotations

import importlib
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_transformer.export.openvino.library import DEVICE, OPENVINO
from keras_transformer.export.targets.onnx_rules import load_graph, onnx_problems
from keras_transformer.export.targets.onnx_target import OnnxTarget
from keras_transformer.export.targets.qnn import OPERATORS
from keras_transformer.export.targets.target import STATIC, Arrays, Measured, Node
from keras_transformer.version import install_command

_MOST_RANK = 8
_MORE = {
    "Asin",
    "EmbedLayerNormalization",
    "Erf",
    "Expand",
    "If",
    "IsNaN",
    "Loop",
    "NonZero",
    "OneHot",
    "Range",
    "ReduceProd",
    "Shape",
    "Size",
    "Tan",
    "Trilu",
}


class OpenVINO(OnnxTarget):
    """OpenVINO on a CPU. See `Target`."""

    name = "openvino"
    libraries = (OPENVINO,)
    precisions = (None, *STATIC)
    tolerance = {None: 1e-4, **dict.fromkeys(STATIC, 0.2)}
    setup = install_command("openvino")

    def check(self, path: pathlib.Path, signature: str) -> list[Node]:
        return list(onnx_problems(load_graph(path), OPERATORS | _MORE, _MOST_RANK))

    def run(self, path: pathlib.Path, signature: str, cases: Sequence[Arrays], precision: str | None) -> Measured:
        core = importlib.import_module("openvino").Core()
        model = core.read_model(path)
        supported = core.query_model(model, DEVICE)
        operations = [
            each for each in model.get_ops() if each.get_type_name() not in ("Constant", "Parameter", "Result")
        ]
        refused = [each for each in operations if each.get_friendly_name() not in supported]
        hints = {"INFERENCE_PRECISION_HINT": "f32"}
        compiled = core.compile_model(model, DEVICE, hints)
        names = [each.name for each in load_graph(path).output]
        outputs = [_call(compiled, names, each) for each in cases]
        reasons = {each.get_type_name(): "not supported by the plugin" for each in refused}
        return Measured(len(operations), len(operations) - len(refused), outputs, reasons)


def _call(compiled: Any, outputs: list[str], arrays: Arrays) -> dict[str, np.ndarray]:
    names = {name for each in compiled.inputs for name in each.get_names()}
    result = compiled({name: array for name, array in arrays.items() if name in names})
    return {name: np.array(result[each]) for name, each in zip(outputs, compiled.outputs, strict=True)}
