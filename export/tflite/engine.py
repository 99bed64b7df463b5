"""Which of LiteRT's two interfaces runs a signature: `CompiledModel` wherever it can, otherwise the interpreter."""

from __future__ import annotations

import collections
import enum
import functools
import pathlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.export.tflite.flatbuffer.signatures import (
    graphs_of_signature,
    interface_of,
    is_dynamic,
    operator_kinds,
)
from keras_transformer.export.tflite.tree import schema, type_names

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import Model, SignatureDef, SubGraph, Tensor, TensorMap

_TYPES = ("FLOAT32", "FLOAT16", "INT32", "INT8", "UINT8", "BOOL")
# Variables, which are not the same in two objects that have opened the file.
_STATES = {"VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE", "CALL_ONCE"}


class Obstacle(enum.Enum):
    """Why `CompiledModel` does not run a signature."""

    MISSING = "this release of LiteRT has no CompiledModel with options for the CPU"
    # LiteRT 2.3 ends the process in calls after `resize_input_tensor`: the buffers of outputs keep their sizes.
    SHAPES = "a tensor has a dynamic shape"
    TYPES = "an input or output has a type that its buffers do not have, or integers that stand for floats"
    STATES = "the signature has variables"
    # Their buffers would not be written.
    OUTPUTS = "an output is a constant, or another output too"


def obstacle(path: pathlib.Path, signature: str) -> Obstacle | None:
    """What keeps `CompiledModel` from running a signature; None where it runs it.

    Args:
        path: path of the file, which was checked: see `check_flatbuffer`.
        signature: name of a signature of it.
    """
    if not _has_compiled_model():
        return Obstacle.MISSING
    model = schema().Model.GetRootAs(np.memmap(path, "uint8", "r"), 0)
    numbers = graphs_of_signature(model, signature)
    graphs = [model.Subgraphs(number) for number in numbers]
    if any(is_dynamic(tensor) for graph in graphs for tensor in _tensors(graph)):
        return Obstacle.SHAPES
    whole = model.Subgraphs(_definition(model, signature).SubgraphIndex())
    if not all(map(_has_buffer, interface_of(whole))):
        return Obstacle.TYPES
    if not _writes_outputs(whole):
        return Obstacle.OUTPUTS
    kinds = operator_kinds(model)
    used = {kinds[graph.Operators(at).OpcodeIndex()] for graph in graphs for at in range(graph.OperatorsLength())}
    return Obstacle.STATES if used & _STATES else None


@functools.cache
def _has_compiled_model() -> bool:
    try:
        from ai_edge_litert.compiled_model import CompiledModel  # noqa: F401
        from ai_edge_litert.cpu_options import CpuOptions
    except ImportError:  # An earlier release, or one without the libraries that it needs.
        return False
    return hasattr(CpuOptions(), "xnnpack_weight_cache_path")


def overwritable(path: pathlib.Path, names: Iterable[str], signature: str) -> set[str]:
    """Those of the tensors that a signature takes and returns which it may overwrite: one operator reads what they were.

    Args:
        path: path of the file, which was checked: see `check_flatbuffer`.
        names: names of inputs that are outputs too.
        signature: name of a signature of the file.
    """
    model = schema().Model.GetRootAs(np.memmap(path, "uint8", "r"), 0)
    definition = _definition(model, signature)
    graph = model.Subgraphs(definition.SubgraphIndex())
    readers = collections.Counter(
        int(index)
        for at in range(graph.OperatorsLength())
        for index in np.atleast_1d(graph.Operators(at).InputsAsNumpy())
    )
    inputs = _indices(definition.Inputs(at) for at in range(definition.InputsLength()))
    outputs = _indices(definition.Outputs(at) for at in range(definition.OutputsLength()))
    found = {name for name in names if name in inputs and name in outputs}
    return {name for name in found if readers[inputs[name]] == 1 and inputs[name] != outputs[name]}


def _writes_outputs(graph: SubGraph) -> bool:
    """Whether each output is written by an operator, or is an input, and no other one is the same tensor."""
    operators = (graph.Operators(at) for at in range(graph.OperatorsLength()))
    known = {int(index) for each in operators for index in np.atleast_1d(each.OutputsAsNumpy())}
    known |= {graph.Inputs(at) for at in range(graph.InputsLength())}
    outputs = [graph.Outputs(at) for at in range(graph.OutputsLength())]
    return len(set(outputs)) == len(outputs) and known.issuperset(outputs)


def _definition(model: Model, signature: str) -> SignatureDef:
    definitions = (model.SignatureDefs(index) for index in range(model.SignatureDefsLength()))
    return next(each for each in definitions if each.SignatureKey() == signature.encode())


def _indices(maps: Iterable[TensorMap]) -> dict[str, int]:
    """Indices of tensors by their names in a signature."""
    return {each.Name().decode(): each.TensorIndex() for each in maps}


def _tensors(graph: SubGraph) -> Iterator[Tensor]:
    return (graph.Tensors(index) for index in range(graph.TensorsLength()))


def _has_buffer(tensor: Tensor) -> bool:
    quantization = tensor.Quantization()
    return type_names()[tensor.Type()] in _TYPES and (quantization is None or not quantization.ScaleLength())
