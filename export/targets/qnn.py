"""Qualcomm's NPU, the Hexagon Tensor Processor, through ONNX Runtime: ONNX files of fixed shapes in fp16 or int8."""

from __future__ import annotations

import collections
import importlib
import pathlib
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.export.runtime.libraries import ONNX_RUNTIME, Library
from keras_transformer.export.targets.onnx_rules import count_nodes, load_graph, onnx_problems
from keras_transformer.export.targets.onnx_target import OnnxTarget
from keras_transformer.export.targets.target import STATIC, Arrays, Measured, NoAcceleratorError, Node
from keras_transformer.utils.captured_stderr import captured_stderr
from keras_transformer.utils.errors import library_exceptions
from keras_transformer.version import install_command

if TYPE_CHECKING:
    import onnx
    import onnxruntime

_PROVIDER = "QNNExecutionProvider"
# The processor of the Snapdragon 8 Gen 3. Without a model the simulator does not start.
_OPTIONS = {"backend_type": "htp", "soc_model": "57", "htp_arch": "75"}
_REFUSED = re.compile(r"\{ name: (?P<name>[^,]*), type: (?P<op>\w+) \}")
_MOST_RANK = 5
# Without those that the simulator refuses in fp16, such as Erf and ReduceProd.
_OPERATORS_TEXT = """
Abs Add And ArgMax ArgMin Atan Attention AveragePool BatchNormalization Cast Ceil Clip Concat Conv ConvTranspose
Cos CumSum DepthToSpace DequantizeLinear Div Einsum Elu Equal Exp Expand Flatten Floor Gather GatherElements
GatherND Gelu Gemm GlobalAveragePool GlobalMaxPool Greater GreaterOrEqual GridSample HardSigmoid HardSwish
Identity InstanceNormalization IsNaN LRN LSTM LayerNormalization LeakyRelu Less LessOrEqual Log LogSoftmax
LpNormalization MatMul Max MaxPool Mean Min Mod Mul Neg Not Or PRelu Pad Pow QuantizeLinear RMSNormalization
Reciprocal ReduceL2 ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceSum Relu Reshape Resize RotaryEmbedding
Round ScatterElements ScatterND Selu Sigmoid Sign Sin Slice Softmax Softplus SpaceToDepth Split Sqrt Squeeze Sub
Sum Tanh Tile TopK Transpose Unsqueeze Where Xor
"""
OPERATORS = frozenset(_OPERATORS_TEXT.split())
_REMEDIES = {"Loop": "use a mechanism without a loop", "GatherND": "use keras.ops.take on a flattened axis"}


class QNN(OnnxTarget):
    """The NPU of Qualcomm's processors, run by the simulator of onnxruntime-qnn. See `Target`.

    Float files compute in fp16 there.
    """

    name = "qnn"
    libraries = (ONNX_RUNTIME, Library("onnxruntime_qnn", "onnxruntime-qnn"))
    precisions = (None, *STATIC)
    tolerance = {None: 2e-2, **dict.fromkeys(STATIC, 0.2)}
    compiled_suffix = ".qnn.onnx"
    quantizes_results = True
    setup = f"{install_command('qnn')} (Qualcomm's license)"

    def check(self, path: pathlib.Path, signature: str) -> list[Node]:
        graph = load_graph(path)
        return [*onnx_problems(graph, OPERATORS, _MOST_RANK, _REMEDIES), *unquantized_results(graph)]

    def run(self, path: pathlib.Path, signature: str, cases: Sequence[Arrays], precision: str | None) -> Measured:
        nodes = count_nodes(path)
        with captured_stderr() as log:
            try:
                session, refused = _session(path, {"session.disable_cpu_ep_fallback": "1"}), {}
            except library_exceptions():
                session = _session(path, {})
                refused = {match["name"]: match["op"] for match in _REFUSED.finditer(log())}
                refused = refused or {"?": "all"}
        taken = 0 if "?" in refused else nodes - len(refused)
        outputs = [_call(session, each) for each in cases]
        return Measured(nodes, taken, outputs, dict.fromkeys(refused.values(), "refused by the HTP backend"))

    def compile(self, path: pathlib.Path, signature: str, compiled: pathlib.Path, precision: str | None) -> bool:
        """Writes an ONNX file with one `EPContext` node, which starts at once on the processor that it was made for."""
        entries = {"session.disable_cpu_ep_fallback": "1", "ep.context_enable": "1", "ep.context_embed_mode": "1"}
        with captured_stderr():
            _session(path, {**entries, "ep.context_file_path": str(compiled)})
        return compiled.is_file()


def _session(path: pathlib.Path, entries: dict[str, str]) -> onnxruntime.InferenceSession:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.add_provider_for_devices([_device()], _OPTIONS)
    for key, value in entries.items():
        options.add_session_config_entry(key, value)
    return onnxruntime.InferenceSession(str(path), options)


def unquantized_results(graph: onnx.GraphProto) -> Iterator[Node]:
    """The dequantized weights with a scale for each channel that are multiplied to a float result.

    The processor multiplies such integers only where the result is quantized too.

    Args:
        graph: `GraphProto`.
    """
    scales = {each.name for each in graph.initializer if len(each.dims) == 1 and each.dims[0] > 1}
    readers = collections.defaultdict(list)
    for node in graph.node:
        for name in node.input:
            readers[name].append(node)
    for node in graph.node:
        if node.op_type != "DequantizeLinear" or node.input[1] not in scales:
            continue
        results = [name for reader in readers[node.output[0]] for name in reader.output]
        if any(each.op_type != "QuantizeLinear" for name in results for each in readers[name]):
            yield Node(node.op_type, node.name, "weights with a scale for each channel, and a result in float")


def _device() -> Any:
    import onnxruntime

    if not any(each.ep_name == _PROVIDER for each in onnxruntime.get_ep_devices()):
        path = importlib.import_module("onnxruntime_qnn").get_library_path()
        onnxruntime.register_execution_provider_library(_PROVIDER, path)
    found = [each for each in onnxruntime.get_ep_devices() if each.ep_name == _PROVIDER]
    if not found:
        raise NoAcceleratorError("onnxruntime-qnn finds no device")
    return found[0]


def _call(session: onnxruntime.InferenceSession, arrays: Arrays) -> dict[str, np.ndarray]:
    names = [each.name for each in session.get_outputs()]
    given = {each.name: arrays[each.name] for each in session.get_inputs()}
    return dict(zip(names, session.run(names, given), strict=True))
