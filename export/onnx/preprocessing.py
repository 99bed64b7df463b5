"""Preprocessing in an ONNX file: lookups of strings as `LabelEncoder`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import onnx_ir as ir

from keras_transformer.export.data.preprocessing.layers import Lookup
from keras_transformer.export.data.preprocessing.steps import Preprocessing, Step
from keras_transformer.export.onnx.graph import make_node, name_of

if TYPE_CHECKING:
    from keras_transformer.export.data.export_spec import PreprocessedSignature

_DOMAIN, _VERSION = "ai.onnx.ml", 4


def steps_inside(preprocessing: Preprocessing) -> list[str]:
    """Names of the results of the steps that a `LabelEncoder` computes: strings that one lookup without a hash reads.

    Args:
        preprocessing: `Preprocessing` of a signature.
    """
    return [each.output for each in preprocessing.steps if each.inputs == (each.output,) and _is_label(each)]


def _is_label(step: Step) -> bool:
    lookup = step.operation
    return isinstance(lookup, Lookup) and lookup.unknown_count == 1 and step.dtype == "int64"


def put_inside(model: ir.Model, preprocessed: PreprocessedSignature) -> None:
    """Puts the lookups of strings before a graph, whose inputs of their names become strings.

    Args:
        model: `onnx_ir.Model`, changed in place.
        preprocessed: `PreprocessedSignature` of the graph.
    """
    names = steps_inside(preprocessed.preprocessing)
    for step in preprocessed.preprocessing.steps:
        if step.output in names and isinstance(step.operation, Lookup):
            _insert(model.graph, step, step.operation, preprocessed.vocabularies)
            model.opset_imports[_DOMAIN] = _VERSION


def _insert(
    graph: ir.Graph, step: Step, lookup: Lookup, vocabularies: Mapping[str, Sequence[str] | Sequence[int]]
) -> None:
    position, old = next((at, each) for at, each in enumerate(graph.inputs) if name_of(each) == step.output)
    new = ir.Value(name=step.output, type=ir.TensorType(ir.DataType.STRING), shape=old.shape)
    old.name = f"{step.output}/index"
    node = make_node(
        "LabelEncoder",
        (new,),
        old.name,
        f"{step.output}/LabelEncoder",
        _DOMAIN,
        **_table(lookup, [str(each) for each in vocabularies[lookup.vocabulary]]),
        default_int64=lookup.unknown_index,
    )
    result = node.outputs[0]
    result.type, result.shape = old.type, old.shape
    old.replace_all_uses_with(result, replace_graph_outputs=True)
    graph.inputs[position] = new
    first = next(iter(graph), None)
    graph.append(node) if first is None else graph.insert_before(first, node)


def _table(lookup: Lookup, tokens: list[str]) -> dict[str, list[str] | list[int]]:
    indices = list(range(lookup.first_index, lookup.first_index + len(tokens)))
    if lookup.mask is not None:
        tokens, indices = [*tokens, str(lookup.mask)], [*indices, lookup.mask_index]
    return {"keys_strings": tokens, "values_int64s": indices}
