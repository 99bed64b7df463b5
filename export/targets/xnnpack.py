"""XNNPACK, LiteRT's kernels for a CPU: what it does not run, the interpreter does, more slowly."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from keras_transformer.export.runtime.libraries import LITERT, TFLITE
from keras_transformer.export.targets.target import STATIC, Arrays, Measured, Node, Target
from keras_transformer.export.targets.tflite_rules import graph_of
from keras_transformer.export.tflite.graph import Graph
from keras_transformer.export.tflite.tree import indices, read_file

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT, OperatorT


class XNNPACK(Target):
    """XNNPACK. See `Target`."""

    name = "xnnpack"
    format = TFLITE
    libraries = (LITERT,)
    precisions = (None, "fp16", "int8", *STATIC, "weight_int8", "weight_int4")
    tolerance = dict.fromkeys((None, *precisions), 1e-4)
    setup = "pip install ai-edge-litert"

    def rewrite(self, model: ModelT, slots: int | None = None) -> None:
        from keras_transformer.export.tflite.delegates.rewrite import rewrite_for_gpu

        rewrite_for_gpu(model)  # It takes what a GPU takes, but for integers.

    def nodes(self, path: pathlib.Path, signature: str) -> int:
        return len(graph_of(read_file(path), signature).subgraph.operators)

    def check(self, path: pathlib.Path, signature: str) -> list[Node]:
        graph = graph_of(read_file(path), signature)
        found = [(each, _reason(graph, each)) for each in graph.subgraph.operators]
        return [Node(graph.kind(each), _name(graph, each), reason) for each, reason in found if reason]

    def run(self, path: pathlib.Path, signature: str, cases: Sequence[Arrays], precision: str | None) -> Measured:
        from keras_transformer.export.tflite.inspection import delegate_report
        from keras_transformer.export.tflite.runtime import TFLiteRuntime

        row = next(each for each in delegate_report(path) if each.signature == signature)
        runtime = TFLiteRuntime(str(path), signature, 1)
        outputs = [runtime(dict(each)) for each in cases]
        return Measured(row.nodes, row.taken, outputs, dict(tuple(row.outside)))


_NUMBERS = ("FLOAT32", "FLOAT16", "INT8", "UINT8", "INT4")
_NOT_TAKEN_TEXT = """
GATHER GATHER_ND SCATTER_ND CAST SELECT SELECT_V2 CUMSUM PACK UNPACK ONE_HOT TILE BROADCAST_TO WHILE TOPK_V2
"""
_NOT_TAKEN = frozenset(_NOT_TAKEN_TEXT.split())


def _reason(graph: Graph, operator: OperatorT) -> str:
    """Why XNNPACK does not run a node, or ""."""
    tensors = (*indices(operator.inputs), *indices(operator.outputs))
    types = [graph.type(each) for each in tensors if each >= 0 and not graph.is_constant(each)]
    others = [each for each in types if each not in _NUMBERS]
    if others:
        return f"type {others[0].lower()}"
    return "not an operation of XNNPACK" if graph.kind(operator) in _NOT_TAKEN else ""


def _name(graph: Graph, operator: OperatorT) -> str:
    return (graph.tensors[indices(operator.outputs)[0]].name or b"").decode().split(";")[0]
