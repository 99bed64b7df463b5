"""Delegate report of a TFLite file: the nodes that XNNPACK runs on the CPU, and what a GPU delegate does not support."""

from __future__ import annotations

import collections
import copy
import dataclasses
import importlib
import pathlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from keras_transformer.export.tflite.graph import Graph
from keras_transformer.export.tflite.tree import read, schema, signature_of, size_of, write
from keras_transformer.utils.captured_stderr import captured
from keras_transformer.utils.types import JsonObject, Path

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT, OperatorT

# Size of dynamic axes while the runtime allocates; nothing is computed.
_SIZE = 8
_GPU_RANK = 4
_GPU_WARNING = re.compile(r"GPU COMPATIBILITY WARNING: (?P<reason>.+)")
_SUBGRAPH = re.compile(r"^Subgraph#(?P<index>\d+)")
# Inputs that determine the shape of the result, which the delegate needs as constants.
_SHAPES = {"RESHAPE": 1, "SLICE": 2, "STRIDED_SLICE": 2, "BROADCAST_TO": 1, "TILE": 1, "TRANSPOSE": 1}
_NUMBERS = ("FLOAT32", "FLOAT16", "INT8", "UINT8", "INT4")


@dataclasses.dataclass(frozen=True)
class DelegateRow:
    """Delegation of one signature.

    Args:
        signature: name of the signature; for a loop in it, `"name/loop 1"` and so on.
        nodes: int, number of nodes.
        taken: int, nodes that XNNPACK runs.
        partitions: int, number of partitions of those nodes.
        outside: dict of `(op, reason)` to the number of nodes that the interpreter runs.
        gpu: tuple of texts: what a GPU delegate does not support.
    """

    signature: str
    nodes: int
    taken: int
    partitions: int
    outside: dict[tuple[str, str], int]
    gpu: tuple[str, ...]

    def __str__(self) -> str:
        outside = ", ".join(f"{op} {count} ({reason})" for (op, reason), count in self.outside.items())
        pieces = "piece" if self.partitions == 1 else "pieces"
        lines = [f"{self.signature}: XNNPACK takes {self.taken} of {self.nodes} nodes, in {self.partitions} {pieces}"]
        lines += [f"  outside: {outside}"] if outside else []
        lines.append(f"  GPU: {'; '.join(self.gpu) if self.gpu else 'compatible'}")
        return "\n".join(lines)


def delegate_report(path: Path | bytes) -> list[DelegateRow]:
    """Returns the nodes of each signature that XNNPACK runs, the others with reasons, and what GPU delegates do not support.

    Args:
        path: path of any .tflite file, or its bytes.

    Returns:
        List of `DelegateRow`, one for each signature and each loop body in it.

    Example:

    >>> import keras
    >>> from keras_transformer.export import export
    >>> from keras_transformer.export.tflite.inspection import delegate_report
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    >>> report = export(model, "/tmp/keras_transformer_doctest", formats=["tflite"])
    >>> [row] = delegate_report("/tmp/keras_transformer_doctest/model.tflite")
    >>> (row.signature, row.nodes, row.taken)
    ('serve', 1, 1)
    """
    content = path if isinstance(path, bytes) else pathlib.Path(path).read_bytes()
    model = read(content)
    refused = _gpu_warnings(content)
    rows = []
    for name, index in _entries(model):
        graph = Graph(model, model.subgraphs[index])
        gpu = (*refused.get(index, ()), *_gpu_problems(graph))
        rows.append(_row(name, model, index, graph, tuple(dict.fromkeys(gpu))))
    return rows


def _entries(model: ModelT) -> Iterator[tuple[str, int]]:
    """`(name, subgraph)` of each signature and of the bodies of its loops."""
    signatures = [(each.signatureKey.decode(), each.subgraphIndex) for each in model.signatureDefs or ()]
    for name, index in signatures or [("main", 0)]:
        yield name, index
        bodies = [
            each.builtinOptions.bodySubgraphIndex
            for each in model.subgraphs[index].operators
            if isinstance(each.builtinOptions, schema().WhileOptionsT)
        ]
        yield from ((f"{name}/loop {number}", body) for number, body in enumerate(bodies, 1))


def _row(name: str, model: ModelT, index: int, graph: Graph, gpu: tuple[str, ...]) -> DelegateRow:
    content = _alone(model, index)
    nodes, single = _planned(content, fused=False)
    _, pieces = _planned(content, fused=True)
    taken = {output for each in single for output in each["outputs"]}
    left = [each for each in nodes if not taken.intersection(each["outputs"])]
    outside = collections.Counter((each["op_name"], _reason(graph, each)) for each in left)
    return DelegateRow(name, len(nodes), len(nodes) - len(left), len(pieces), dict(outside.most_common()), gpu)


def _alone(model: ModelT, index: int) -> bytes:
    """A file with one subgraph first, followed by those that it calls: the interpreter lists nodes of the first only."""
    changed = copy.copy(model)
    changed.signatureDefs = None
    order = _reachable(model, index)
    positions = {old: new for new, old in enumerate(order)}
    changed.subgraphs = []
    for old in order:
        graph = copy.copy(model.subgraphs[old])
        graph.operators = [_renumbered(each, positions) for each in graph.operators]
        changed.subgraphs.append(graph)
    used = {tensor.buffer for graph in changed.subgraphs for tensor in graph.tensors}
    changed.buffers = [each if at in used else schema().BufferT() for at, each in enumerate(model.buffers)]
    return write(changed)


def _reachable(model: ModelT, index: int) -> list[int]:
    """A subgraph and, recursively, those that its operators call."""
    order = [index]
    for current in order:
        for operator in model.subgraphs[current].operators:
            order += [each for _, each in _calls(operator) if each not in order]
    return order


def _calls(operator: OperatorT) -> list[tuple[str, int]]:
    """`(attribute, subgraph)` of every subgraph that an operator calls."""
    options = [each for each in (operator.builtinOptions, operator.builtinOptions2) if each is not None]
    attributes = [item for each in options for item in vars(each).items()]
    return [(key, value) for key, value in attributes if key.lower().endswith("subgraphindex") and value >= 0]


def _renumbered(operator: OperatorT, positions: dict[int, int]) -> OperatorT:
    if not _calls(operator):
        return operator
    operator = copy.copy(operator)
    for side in ("builtinOptions", "builtinOptions2"):
        options = copy.copy(getattr(operator, side))
        for key, value in _calls(operator):
            if hasattr(options, key):
                setattr(options, key, positions[value])
        setattr(operator, side, options)
    return operator


def _planned(content: bytes, fused: bool) -> tuple[list[Any], list[Any]]:
    """The nodes of the first subgraph, and those of the delegate, which replace the nodes with the same outputs."""
    from ai_edge_litert.interpreter import Interpreter

    with captured():
        interpreter = Interpreter(
            model_content=content, num_threads=1, experimental_disable_delegate_node_fusion=not fused
        )
        nodes = interpreter._get_ops_details()
        for each in interpreter.get_input_details():
            if (each["shape_signature"] < 0).any():
                sizes = [_SIZE if size < 0 else size for size in each["shape_signature"]]
                interpreter.resize_tensor_input(each["index"], sizes)
        interpreter.allocate_tensors()
        return nodes, interpreter._get_ops_details()[len(nodes) :]


def _reason(graph: Graph, node: JsonObject) -> str:
    """Why XNNPACK does not run a node, as far as the file shows."""
    inputs = [index for index in node["inputs"] if index >= 0]
    position = _SHAPES.get(node["op_name"])
    if position is not None and len(inputs) > position and not _is_constant(graph, inputs[position]):
        return "dynamic shape"
    data = [index for index in (*inputs, *node["outputs"]) if not _is_constant(graph, index)]
    types = [_type(graph, index) for index in data if index < len(graph.tensors)]
    others = [each for each in types if each not in _NUMBERS]
    if others:
        return f"type {others[0].lower()}"
    return "op not supported"


def _is_constant(graph: Graph, index: int) -> bool:
    return bool(index < len(graph.tensors) and size_of(graph.model.buffers[graph.tensors[index].buffer]))


def _type(graph: Graph, index: int) -> str:
    number = graph.tensors[index].type
    return next(name for name, value in vars(schema().TensorType).items() if value == number and name.isupper())


def _gpu_warnings(content: bytes) -> dict[int, tuple[str, ...]]:
    """Dict of subgraph to the warnings of LiteRT's analyzer."""
    analyzer = importlib.import_module("ai_edge_litert._pywrap_analyzer_wrapper")

    with captured():
        text = analyzer.ModelAnalyzer(content, False, True)
    found: dict[int, dict[str, None]] = {}
    current = 0
    for line in text.splitlines():
        header, warning = _SUBGRAPH.match(line), _GPU_WARNING.search(line)
        if header:
            current = int(header["index"])
        elif warning:
            found.setdefault(current, {})[warning["reason"].strip()] = None
    return {index: tuple(reasons) for index, reasons in found.items()}


def _gpu_problems(graph: Graph) -> Iterator[str]:
    """Known limits of GPU delegates that the analyzer does not report."""
    tensors = {index for each in graph.subgraph.operators for index in (*_all(each.inputs), *_all(each.outputs))}
    shapes = [signature_of(graph.tensors[index]) for index in tensors if index >= 0]
    if any(None in shape for shape in shapes):
        yield "dynamic shapes"
    ranks = [len(shape) for shape in shapes if len(shape) > _GPU_RANK]
    if ranks:
        yield f"{len(ranks)} tensors of rank {max(ranks)}"
    broadcasts = sum(graph.kind(each) == "BROADCAST_TO" for each in graph.subgraph.operators)
    if broadcasts:
        yield f"{broadcasts} BROADCAST_TO"


def _all(indices: Any) -> Any:
    return () if indices is None else indices
