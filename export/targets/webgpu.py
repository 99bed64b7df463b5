"""ONNX Runtime in a web page, on the GPU of the browser: ONNX files of fixed shapes and of standard operators."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from keras_transformer.export.targets.onnx_rules import load_graph, onnx_problems
from keras_transformer.export.targets.onnx_target import OnnxTarget
from keras_transformer.export.targets.target import Arrays, Measured, Node

if TYPE_CHECKING:
    import onnx

    from keras_transformer.export.onnx.options import OnnxOptions

_MOST_RANK = 6
# Found by handing it graphs of one operator each (onnxruntime-web 1.30, opset 20).
_OPERATORS_TEXT = """
Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh AveragePool BatchNormalization Cast Ceil Clip Concat Conv
ConvTranspose Cos Cosh CumSum DepthToSpace DequantizeLinear Div Einsum Elu Equal Erf Exp Expand Flatten Floor Gather
GatherElements GatherND Gelu Gemm GlobalAveragePool GlobalMaxPool Greater GreaterOrEqual GridSample HardSigmoid HardSwish
Identity InstanceNormalization LayerNormalization LeakyRelu Less LessOrEqual Log MatMul Max MaxPool Min Mul Neg Not Pad
Pow Reciprocal ReduceL1 ReduceL2 ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum Relu Reshape Resize ScatterElements
ScatterND Sigmoid Sin Sinh Slice Softmax Softplus Split Sqrt Squeeze Sub Tan Tanh Tile TopK Transpose Trilu Unsqueeze Where
"""
OPERATORS = frozenset(_OPERATORS_TEXT.split())
_LONG, _BOOL = 7, 9  # TensorProto.INT64 and BOOL
# Their first input is what they compute with; others are sizes and places, which ONNX has in 64 bits.
_READS_LONG_TEXT = """
Expand Gather GatherElements GatherND Pad Reshape ScatterElements ScatterND Slice Split Squeeze Tile TopK Trilu Unsqueeze
"""
_READS_LONG = frozenset(_READS_LONG_TEXT.split())
_NOT_OF_BOOL = frozenset({"Concat", "Slice", "Tile", "Transpose"})


class WebGPU(OnnxTarget):
    """The WebGPU provider of onnxruntime-web, in a headless Chromium. See `Target`."""

    name = "webgpu"
    tolerance = {None: 1e-4}
    setup = "npm install onnxruntime-web, and install Chromium"

    @property
    def onnx(self) -> OnnxOptions:
        """Operators of opset 20, without those of ONNX Runtime, whose attention has no masks there."""
        from keras_transformer.export.onnx.options import OnnxOptions

        return OnnxOptions(opset=20, contrib_ops=False)

    def check(self, path: pathlib.Path, signature: str) -> list[Node]:
        graph = load_graph(path)
        found = [*onnx_problems(graph, OPERATORS, _MOST_RANK), *unfit_types(graph)]
        return list({each.name or id(each): each for each in reversed(found)}.values())[::-1]

    def run(self, path: pathlib.Path, signature: str, cases: Sequence[Arrays], precision: str | None) -> Measured:
        from keras_transformer.export.targets.browser import run_in_browser

        placed, outputs = run_in_browser(path, cases)
        taken = sum(len(nodes) for provider, nodes in placed.items() if provider.startswith(("WebGpu", "Js")))
        others = [op for provider, nodes in placed.items() if not provider.startswith(("WebGpu", "Js")) for op in nodes]
        return Measured(taken + len(others), taken, outputs, dict.fromkeys(others, "computed on the CPU"))

    def missing_library(self) -> str | None:
        from keras_transformer.export.targets.browser import missing

        found = missing()
        return found and f"{found}: {self.setup}"

    @property
    def simulator(self) -> str:
        from keras_transformer.export.targets.browser import versions

        return versions()


def unfit_types(graph: onnx.GraphProto) -> Iterator[Node]:
    """The nodes that compute integers of 64 bits, which shaders have not, or move booleans.

    Args:
        graph: `GraphProto` with types.
    """
    kinds = {each.name: each.type.tensor_type.elem_type for each in (*graph.input, *graph.value_info, *graph.output)}
    constants = {each.name for each in graph.initializer}
    for node in graph.node:
        data = node.input[:1] if node.op_type in _READS_LONG else node.input
        found = {kinds.get(each) for each in data if each not in constants}
        if _LONG in found and node.op_type != "Cast":
            yield Node(node.op_type, node.name, "type int64", "use int32 for inputs and indices")
        elif _BOOL in found and node.op_type in _NOT_OF_BOOL:
            yield Node(node.op_type, node.name, "type bool", "use int32, and compare afterwards")
