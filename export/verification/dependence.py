"""Dependence of outputs on inputs: of an input that moves nothing, the probes do not show how a file reads it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.export.data.export_spec import Probe
from keras_transformer.export.graph.part import node_name
from keras_transformer.export.verification.comparison import compare
from keras_transformer.export.verification.references import is_constant
from keras_transformer.utils.errors import library_exceptions

if TYPE_CHECKING:
    from keras_transformer.export.graph.traced_graph import TracedGraph

# Computes the outputs of the model, by name.
Run = Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]


def inputs_without_effect(
    graph: TracedGraph, probes: Sequence[Probe], run: Run, without: Collection[str] = ()
) -> list[str]:
    """A line for each input that changes nothing in some output that is computed from it, or that none is computed from.

    An input of the smallest probe is exchanged for other values that it has in the probes. Where an output does not move
    beyond rounding, the other probes are tried.

    Args:
        graph: `TracedGraph` of the signature.
        probes: its probes, with their outputs and their rounding.
        run: the model.
        without: names of inputs and outputs that are left out, such as those of a cache.

    Returns:
        Nothing for a model of one input.
    """
    inputs = [name for name in graph.inputs if name not in without]
    outputs = [name for name in graph.outputs if name not in without and not is_constant(name, probes)]
    if len(inputs) < 2:
        return []
    ordered = sorted(probes, key=lambda probe: sum(each.size for each in probe.inputs.values()))
    sources = {name: _sources(graph, name) for name in outputs}
    lines: list[str] = []
    for name in inputs:
        reached = [each for each in outputs if name in sources[each]]
        unmoved = _unmoved(name, reached, ordered, run)
        if unmoved:
            shown = ", ".join(f"'{each}'" for each in unmoved)
            lines.append(f"input '{name}' changed nothing in {shown} over the probes: nothing was shown of it")
        elif outputs and not reached:
            lines.append(f"input '{name}' is not read for any output")
    return lines


def _sources(graph: TracedGraph, output: str) -> set[str]:
    """The names of all operations and inputs that an output is computed from."""
    read = {node.name: [node_name(each) for each in node.input] for node in graph.graph_def.node}
    found, left = set[str](), [node_name(graph.outputs[output])]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += read.get(name, ())
    return found


def _unmoved(name: str, outputs: Sequence[str], probes: Sequence[Probe], run: Run) -> list[str]:
    """Which of some outputs an input does not move in any probe; none where it has one value only."""
    found, is_tried = list(outputs), False
    for moved in _moved(name, probes, run) if outputs else ():
        found, is_tried = [each for each in found if each not in moved], True
        if not found:
            break
    return found if is_tried else []


def _moved(name: str, probes: Sequence[Probe], run: Run) -> Iterator[set[str]]:
    """The outputs that an input moves, in one probe after another."""
    for probe in probes:
        other = _other_values(name, probe, probes)
        if np.array_equal(other, probe.inputs[name]):
            continue
        try:
            results = run(probe.inputs | {name: other})
        except library_exceptions():  # An index beyond the end, say: it is read.
            yield set(probe.outputs)
            return
        yield {key for key, each in results.items() if _differs(each, probe, key)}


def _other_values(name: str, probe: Probe, probes: Sequence[Probe]) -> np.ndarray:
    """As many values as an input has in a probe, of all probes or in another order: those that differ most."""
    own = probe.inputs[name]
    values = np.concatenate([each.inputs[name].ravel() for each in probes])
    starts = range(0, values.size - own.size + 1, max(own.size, 1))
    parts = [values[start : start + own.size].reshape(own.shape) for start in starts]
    if own.size and own.dtype.kind in "iu":  # An index beyond these may be one beyond the end of another input.
        parts = [np.clip(part, own.min(), own.max()) for part in parts]
    return max([*parts, np.roll(own, 1)], key=lambda part: np.count_nonzero(part != own))


def _differs(result: np.ndarray, probe: Probe, name: str) -> bool:
    """Whether an output is another one than that of a probe, beyond rounding."""
    expected = probe.outputs[name]
    if result.shape != expected.shape:
        return True
    return not compare(result, expected, probe.rounding.get(name)).is_accepted
