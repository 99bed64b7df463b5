"""The probes of a Functional model: a user's, generated ones, and further ones of other sizes and regions of values."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence

import keras
import numpy as np

from keras_transformer.export.data import axes
from keras_transformer.export.data.array_spec import ArraySpec
from keras_transformer.export.data.export_spec import Probe, Signature
from keras_transformer.export.errors import InvalidModelError
from keras_transformer.export.spec import names, probes, vocabulary
from keras_transformer.export.spec.lengths import FACTORS, has_shapes, reaching_length
from keras_transformer.export.spec.probing import further
from keras_transformer.export.spec.probing.known_values import fill_in, known_values, with_known_values
from keras_transformer.export.spec.probing.ranges import Range, ranges_of, with_ranges
from keras_transformer.utils.types import ArrayLike

# Of the floats in further probes of models of logarithms, roots and the like.
_RANGES = ((0.05, 0.95), (1.05, 3.0))
# Of the largest generated probe of a model that takes no short ones.
_MOST_ELEMENTS = 2**24


def probes_of(
    model: keras.Model,
    inputs: tuple[ArraySpec, ...],
    given: Sequence[Mapping[str, ArrayLike]] | None,
    factor: int = 1,
) -> list[Probe]:
    """The first probes of a Functional model: those that the user gives, or else generated ones; without outputs.

    Args:
        model: the model.
        inputs: tuple of `ArraySpec`.
        given: dicts of arrays or of sizes of axes, or None.
        factor: how many times as long as usual the sequences of generated ones are.
    """
    limits = input_limits(model, inputs)
    if given is not None:
        return probes.user_probes(inputs, limits, given, functools.partial(_fill, model, inputs))
    longest = vocabulary.longest_sequence(model)
    made = probes.make_probes(inputs, limits, longest, factor)
    found = with_known_values(made, inputs, known_values(keras.tree.flatten(model.input), longest))
    with_ranges(found, inputs, _ranges(model, inputs))
    return found


def input_limits(model: keras.Model, inputs: Sequence[ArraySpec]) -> dict[str, int | None]:
    """The limits of the inputs of the model, which come before its states."""
    limits = vocabulary.integer_limits(keras.tree.flatten(model.input))
    return dict(zip([spec.name for spec in inputs][: len(limits)], limits, strict=True))


def add_finite_probes(model: keras.Model, signature: Signature) -> None:
    """Adds probes of floats between 0 and 1, and above 1, where an output has values that are not finite on the others."""
    values = [value for probe in signature.probes for value in probe.outputs.values()]
    if all(np.isfinite(value).all() for value in values if value.dtype.kind == "f"):
        return
    sizes = axes.sizes_of(signature.inputs, signature.probes[-1].inputs)
    for low, high in _RANGES:
        probe = probes.probe_of_sizes(signature.inputs, input_limits(model, signature.inputs), sizes, padded=False)
        probe.label = f"{probe.label}, between {low} and {high}"
        for name, array in probe.inputs.items():
            if array.dtype.kind == "f" and not name.endswith("_rate"):
                probe.inputs[name] = (low + (high - low) * np.abs(np.tanh(array))).astype(array.dtype)
        probes.fill_references(dataclasses.replace(signature, probes=[probe], is_repeatable=True), may_be_nan=True)
        signature.probes.append(probe)


def add_reaching_probe(model: keras.Model, signature: Signature) -> None:
    """Adds a probe past every window and block, unless the model has a limit that no layer names."""
    for probe in _reaching(model, signature):
        with contextlib.suppress(InvalidModelError):
            probes.fill_references(dataclasses.replace(signature, probes=[probe]), may_be_nan=True)
            signature.probes.append(probe)


def add_further_probes(model: keras.Model, signature: Signature, factor: int = 1) -> None:
    """Adds probes of other sizes and of other regions of values; those that the model does not take are left out.

    Args:
        model: the Functional model.
        signature: its `Signature`, whose probes have outputs.
        factor: as of `probes_of`.
    """
    further.add_further(signature, _cases(model, signature, factor), _fits(model))


def add_generated_probes(model: keras.Model, signature: Signature) -> None:
    """Adds generated probes to those of a user, as long as the model needs, where it takes any of them.

    Where it takes some sizes only, the user's rows come in other batches too, and cut to lengths between theirs.

    Args:
        model: the Functional model.
        signature: its `Signature`, whose probes are the user's and have outputs.
    """
    given, failed = list(signature.probes), list[str]()
    for factor in FACTORS:
        if probes.num_elements(signature.inputs, probes.longest_sizes(signature.inputs, factor)) > _MOST_ELEMENTS:
            break
        made = [*probes_of(model, signature.inputs, None, factor), *_reaching(model, signature)]
        further.add_further(signature, [*made, *_cases(model, signature, factor)], _fits(model))
        if signature.further:
            break
        failed, signature.not_shown = failed or signature.not_shown, []
    signature.not_shown = signature.not_shown or failed
    if signature.not_shown:
        further.add_further(signature, further.resized_probes(signature.inputs, given), _fits(model))


def _reaching(model: keras.Model, signature: Signature) -> list[Probe]:
    limits = input_limits(model, signature.inputs)
    found = probes.reaching_probes(signature.inputs, limits, reaching_length(model))
    for probe in found:
        _fill(model, signature.inputs, probe)
    return found


def _cases(model: keras.Model, signature: Signature, factor: int) -> list[Probe]:
    """The further probes of a model, with the values that its layers name."""
    inputs = signature.inputs
    limits, longest = input_limits(model, inputs), vocabulary.longest_sequence(model)
    known = known_values(keras.tree.flatten(model.input), longest)
    taken = {spec.name for spec, each in zip(inputs[: len(known)], known, strict=True) if each}
    taken |= {name for name, limit in limits.items() if limit or name.endswith("_rate")}
    taken |= {spec.name for spec in inputs if probes.is_mask(spec)}
    regions = dict.fromkeys((name for name in limits if name not in taken), further.REGIONS)
    regions |= {
        name: further.BOUNDED if each.is_bounded else further.NORMAL for name, each in _ranges(model, inputs).items()
    }
    fill = functools.partial(_fill, model, inputs)
    return further.further_cases(inputs, limits, regions, model.count_params(), fill, longest, factor)


def _fill(model: keras.Model, inputs: Sequence[ArraySpec], probe: Probe) -> None:
    """Fills in the values that the layers of a model name."""
    fill_in(probe, inputs, known_values(keras.tree.flatten(model.input), vocabulary.longest_sequence(model)))
    with_ranges([probe], inputs, _ranges(model, inputs))


def _ranges(model: keras.Model, inputs: Sequence[ArraySpec]) -> dict[str, Range]:
    found = ranges_of(keras.tree.flatten(model.input))
    named = zip([spec.name for spec in inputs][: len(found)], found, strict=True)
    return {name: each for name, each in named if each is not None}


def _fits(model: keras.Model) -> Callable[[Probe], bool]:
    """Whether the outputs of a probe have the shapes that the model says."""
    shapes = [tensor.shape for _, tensor in names.outputs_in_order(model.output)]
    return lambda probe: has_shapes(probe, shapes)
