"""The ranges of the tensors of a float TFLite file on calibration data, as TensorFlow's quantizer takes them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

from keras_transformer.export.errors import QuantizationError
from keras_transformer.export.quantization.learned_ranges import LearnedRanges, range_of
from keras_transformer.export.quantization.ranges import RangeObserver
from keras_transformer.export.remedies import Remedy
from keras_transformer.export.tflite.graph import Graph, graphs
from keras_transformer.export.tflite.quantization.calibrate import runs_on
from keras_transformer.export.tflite.quantization.integer_kernels import BOUNDS
from keras_transformer.export.tflite.tree import indices, read

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT, OperatorT

    from keras_transformer.export.quantization.calibration_data import Batch

# The range of a tensor by the indices of its graph and its own.
Ranges: TypeAlias = "dict[tuple[int, int], tuple[float, float]]"
# Operators that take parts of a tensor, or move its numbers, and where they have it among their inputs.
_TAKING = {
    **dict.fromkeys(("GATHER", "GATHER_ND", "SLICE", "STRIDED_SLICE", "SPLIT_V", "UNPACK", "MAX_POOL_2D"), 0),
    **dict.fromkeys(("RESHAPE", "EXPAND_DIMS", "SQUEEZE", "TRANSPOSE", "TILE", "BROADCAST_TO", "REVERSE_V2"), 0),
    **dict.fromkeys(("EMBEDDING_LOOKUP", "SPLIT"), 1),
}
# Narrower ranges contain at least the numbers up to this one, of both signs.
_NARROW, _NEAR_ZERO = 1e-5, 1e-6
# The range of a tensor that is zero throughout.
_ZEROS = (0.0, 1.0)


def tensor_ranges(
    content: bytes,
    calibration: Sequence[Batch],
    method: str = "mse",
    bits: int = 8,
    learned: LearnedRanges | None = None,
) -> Ranges:
    """The ranges of all float tensors that a file computes, on calibration data.

    Args:
        content: bytes of a float .tflite file.
        calibration: list of dicts of arrays by input name.
        method: one of `quantization.ranges.RANGES`.
        bits: of the activations.
        learned: `LearnedRanges` of some tensors, or None.

    Returns:
        The ranges. The bodies of loops have none: errors of a state in 8 bits would add up over the steps.

    Raises:
        QuantizationError: a signature takes none of the data.
    """
    model, observers = read(content), dict[tuple[int, int], RangeObserver]()
    names = {each.signatureKey.decode() for each in model.signatureDefs}
    for name, number, interpreter in runs_on(content, model, calibration):
        names.discard(name)
        graph = Graph(model, model.subgraphs[number])
        for index in _computed(graph):
            with contextlib.suppress(ValueError):  # It keeps no value of some results of loops.
                values = interpreter.get_tensor(index, number)
                observers.setdefault((number, index), RangeObserver()).add(values)
    if names:
        raise QuantizationError(f"tflite: signature '{min(names)}' takes none of the calibration data", Remedy.STEPS)
    found = {key: range_of(observer, method, bits, learned) for key, observer in observers.items()}
    ranges = {key: _quantizable(*ends) for key, ends in found.items()}
    _share_ranges(model, ranges)
    _join_states(model, ranges)
    return ranges


def _quantizable(least: float, largest: float) -> tuple[float, float]:
    """A range as the quantizer takes it, which widens those of numbers near zero."""
    if largest <= least:
        return _ZEROS
    return (least, largest) if largest - least > _NARROW else (min(least, -_NEAR_ZERO), max(largest, _NEAR_ZERO))


def _share_ranges(model: ModelT, ranges: Ranges) -> None:
    """Gives results that have the scale of an operand its range: the quantizer would give the operand that of a result.

    Of a table, other data take other parts. A bound cuts off what nothing else reads.
    """
    for number, graph in enumerate(graphs(model)):
        graph.find_uses()
        for operator in graph.subgraph.operators:
            source = _shared(graph, operator)
            if source is None:
                continue
            table = graph.value(source) if graph.type(source) == "FLOAT32" else None
            ends = ranges.get((number, source))
            if table is not None:
                ends = _quantizable(min(float(table.min()), 0.0), max(float(table.max()), 0.0))
            for index in indices(operator.outputs):
                if ends is not None and (number, index) in ranges:
                    ranges[number, index] = ends


def _shared(graph: Graph, operator: OperatorT) -> int | None:
    """The operand whose scale the results of an operator have, or None."""
    kind = graph.kind(operator)
    if kind not in BOUNDS:
        return int(operator.inputs[_TAKING[kind]]) if kind in _TAKING else None
    sources = [index for index in indices(operator.inputs) if not graph.is_constant(index)]
    return sources[0] if len(sources) == 1 and graph.only_reader(sources[0]) is None else None


def _join_states(model: ModelT, ranges: Ranges) -> None:
    """Gives an input and the output of its name, a state that the next call takes, the range of both."""
    for signature in model.signatureDefs:
        outputs = {each.name.decode().removesuffix("_output"): int(each.tensorIndex) for each in signature.outputs}
        for each in signature.inputs:
            places = (int(each.tensorIndex), outputs.get(each.name.decode(), -1))
            keys = [(int(signature.subgraphIndex), place) for place in places]
            if all(key in ranges for key in keys):
                # The first state may be the only one in the data.
                least, largest = zip(*([ranges[key] for key in keys if ranges[key] != _ZEROS] or [_ZEROS]), strict=True)
                ranges |= dict.fromkeys(keys, (min(least), max(largest)))


def _computed(graph: Graph) -> Iterator[int]:
    """The float tensors that a graph takes or computes."""
    results = {index for operator in graph.subgraph.operators for index in indices(operator.outputs)}
    for index in sorted(results | set(indices(graph.subgraph.inputs))):
        if graph.type(index) == "FLOAT32":
            yield index
