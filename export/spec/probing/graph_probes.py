"""Further probes of what a traced graph gives a meaning: NaN, infinities, and the ends of integer types.

NaN and infinities count where the model tells them from other numbers, the ends where it only moves and compares integers.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import tensorflow as tf

from keras_transformer.export.data.export_spec import ExportSpec, Probe, Signature
from keras_transformer.export.graph.operation_results import result_types
from keras_transformer.export.graph.reach import Read, reads_of
from keras_transformer.export.operations.differences import inputs_told_apart, tells_infinities, tells_nan
from keras_transformer.export.runtime.precision import full_precision
from keras_transformer.export.spec.probes import is_mask
from keras_transformer.export.spec.probing import further

if TYPE_CHECKING:
    from keras_transformer.export.graph.traced import TracedModule
    from keras_transformer.export.graph.traced_graph import TracedGraph

Values = Callable[[np.ndarray, np.random.Generator], np.ndarray]

# Operations on integers that do not overflow: of all operands, and of the first one, beside which are sizes and axes.
_OF_ALL = (
    *("Equal", "Greater", "GreaterEqual", "Less", "LessEqual", "Maximum", "Minimum", "NotEqual", "Select", "SelectV2"),
    *("Identity", "IdentityN", "Pack", "Unpack"),
)
_OF_FIRST = (
    *("BroadcastTo", "ExpandDims", "Max", "Min", "Reshape", "ReverseV2", "Slice", "SplitV", "Squeeze", "StridedSlice"),
    *("Tile", "Transpose"),
)
_NUMBERLESS = ("OnesLike", "Rank", "Shape", "ShapeN", "Size", "ZerosLike")
# The share of elements that are none of the usual ones.
_SHARE = 0.25


class _Region(NamedTuple):
    """Values of some inputs, and which outputs of the model show something of them."""

    label: str
    inputs: list[str]
    values: Values
    shows: Callable[[Signature, Probe], bool]


def add_graph_probes(spec: ExportSpec, traced: TracedModule) -> None:
    """Adds further probes to the signatures of a spec; those of which the model shows nothing are left out, and named.

    Args:
        spec: `ExportSpec` whose probes have their outputs.
        traced: its `TracedModule`.
    """
    for name, signature in spec.signatures.items():
        if signature.general is not None or name in spec.preprocessed:
            continue
        graph, carried = traced.graphs[name], spec.carried(name)
        integers = [] if spec.generation else [each for each in _free_integers(signature) if _keeps_ends(graph, each)]
        for region in (
            _Region("NaN", inputs_told_apart(graph, tells_nan), _with_nan, _is_partly_finite),
            _Region("infinities", inputs_told_apart(graph, tells_infinities), _with_infinities, _is_finite),
            _Region("the ends of the type", integers, _with_ends, _is_finite),
        ):
            inputs = [each for each in region.inputs if each not in carried]
            if inputs:
                _add(signature, region._replace(inputs=inputs))


def _add(signature: Signature, region: _Region) -> None:
    """Adds a probe of a region, made of the smallest one of several rows.

    Optimized graphs may lose NaN, in an activation that is fused with a product, say: then Keras itself does not define it.
    """
    ordered = sorted(signature.probes, key=lambda probe: sum(each.size for each in probe.inputs.values()))
    base = next((each for each in ordered if _num_rows(each.inputs, region) > 1), ordered[-1])
    random = np.random.default_rng(zlib.crc32(region.label.encode()))
    changed = {name: region.values(base.inputs[name], random) for name in region.inputs}
    probe = Probe(base.inputs | changed, f"{base.label}, {region.label}", region=region.label)
    reason = further.failure(signature, probe) or (None if region.shows(signature, probe) else "is not finite there")
    if reason is None and not _is_finite_where(probe.outputs, _compiled(signature, probe)):
        reason = "is finite in another place there when it is compiled"
    further.add(signature, probe, reason)


def _compiled(signature: Signature, probe: Probe) -> dict[str, np.ndarray]:
    """What a model computes of a probe as a function that TensorFlow optimizes."""
    tensors = {name: tf.convert_to_tensor(each) for name, each in probe.inputs.items()}
    with full_precision():
        results = tf.function(signature.function, autograph=False).get_concrete_function(tensors)(tensors)
    return {name: np.asarray(each) for name, each in results.items()}


def _is_finite_where(outputs: Mapping[str, np.ndarray], others: Mapping[str, np.ndarray]) -> bool:
    """Whether outputs are finite where others are."""
    names = [name for name, each in outputs.items() if each.dtype.kind == "f"]
    return all(np.array_equal(np.isfinite(outputs[name]), np.isfinite(others[name])) for name in names)


def _num_rows(inputs: Mapping[str, np.ndarray], region: _Region) -> int:
    return min(len(inputs[name]) if inputs[name].ndim else 1 for name in region.inputs)


def _is_partly_finite(signature: Signature, probe: Probe) -> bool:
    return any(each.dtype.kind != "f" or np.isfinite(each).any() for each in probe.outputs.values())


def _is_finite(signature: Signature, probe: Probe) -> bool:
    return further.is_finite_alike(signature.probes, probe)


def _with_nan(array: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """NaN in some elements, and in all of the last row."""
    values = np.where(random.random(array.shape) < _SHARE, np.asarray(np.nan, array.dtype), array)
    if array.ndim and len(array) > 1:
        values[-1] = np.nan
    return values


def _with_infinities(array: np.ndarray, random: np.random.Generator) -> np.ndarray:
    signs = np.where(random.random(array.shape) < 0.5, -np.inf, np.inf).astype(array.dtype)
    return np.where(random.random(array.shape) < _SHARE, signs, array)


def _with_ends(array: np.ndarray, random: np.random.Generator) -> np.ndarray:
    limits = np.iinfo(array.dtype)
    return random.choice(np.array([limits.min, limits.max, -1, 0, 1], array.dtype), array.shape)


def _free_integers(signature: Signature) -> list[str]:
    """The inputs of integers that nothing limits: those that are negative in some probe."""
    specs = [each for each in signature.inputs if each.dtype.startswith("int") and not is_mask(each)]
    return [
        each.name for each in specs if any(probe.inputs[each.name].min(initial=0) < 0 for probe in signature.all_probes)
    ]


def _keeps_ends(graph: TracedGraph, name: str) -> bool:
    """Whether a model only moves and compares an input of integers, so that none overflows in TensorFlow either."""
    return all(map(_takes_ends, reads_of(graph, name, _has_ends)))


def _has_ends(read: Read) -> bool:
    """Whether results may be ends where an operand is: they are numbers."""
    types = map(tf.as_dtype, result_types(read.node.op, read.node.message.attr))
    return read.node.op not in _NUMBERLESS and not all(each.is_bool for each in types)


def _takes_ends(read: Read) -> bool:
    node = read.node
    operands = [node.dtype(number) for number, is_given in enumerate(read.given) if is_given]
    if node.op == "Cast":
        result = node.attribute("DstT")
        return not result.is_integer or (operands[0].is_integer and operands[0].limits == result.limits)
    if node.op in (*_OF_ALL, *_NUMBERLESS):  # Floats too, which would be larger than others are.
        return True
    return (node.op in _OF_FIRST and not any(read.given[1:])) or (node.op == "ConcatV2" and not read.given[-1])
