"""Further probes: batches, lengths and regions of values beside those of the first probes, and beside a user's data.

Float files are compared on them while they are exported. They are not kept in the bundle. Those that the model itself does
not take are left out, and named: see `Signature.not_shown`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from keras_transformer.export.bundle.probe_files import resized_inputs
from keras_transformer.export.data.array_spec import ArraySpec
from keras_transformer.export.data.axes import sizes_of
from keras_transformer.export.data.export_spec import Probe, Signature
from keras_transformer.export.errors import InvalidModelError
from keras_transformer.export.spec.probes import Limits, fill_references, is_mask, num_elements, probe_of_sizes
from keras_transformer.utils.captured_stderr import captured

Region = Callable[[np.ndarray], np.ndarray]


class _Case(NamedTuple):
    """A probe: its size along the axis `batch` and along others, the region of its values, whether masks are padded, and the
    cost above which it is left out."""

    batch: int
    length: int
    region: str = ""
    padded: bool = False
    most: float = math.inf


# Powers of two and one beside them, odd and single; the sizes of the first probes are 1 and 5, 5 and 17. In pairs, not all
# with all: a fault of one size or region shows in the one probe that has it.
_CASES = (
    _Case(2, 33, "large"),
    _Case(7, 16),
    _Case(3, 32, padded=True),
    _Case(4, 8, "bytes"),
    _Case(2, 9, "tiny"),
    _Case(1, 7, "zeros"),
    _Case(2, 4, "constant"),
    _Case(8, 1, padded=True),
    _Case(16, 15),
    _Case(64, 2),
    # Many numbers, of which some are those few that a fault may be of; as many as images have without it.
    _Case(64, 64, most=1e9),
)
# Regions whose cases are left out where they change nothing: their sizes tell nothing more.
_OF_VALUES_ALONE = ("tiny", "zeros", "constant")
# With so many rows no length is 1: oneDNN multiplies (16, 1, T, K) by a matrix beyond its memory (TensorFlow 2.21).
_MANY_ROWS = 16
# Sizes of images, and those for networks that halve an image five times.
_SIDES, _MULTIPLES_OF_32 = (33, 40), (32, 64)
_LARGE, _TINY = 30.0, 3e-5
_CHANNELS = (1, 3, 4)
# Batches of a user's rows.
_BATCHES = (1, 2, 3, 5, 8)
# Parameters times elements of the inputs, at least as many as multiplications: so many are computed at once; of more, some
# times as many as the first probes have.
_CHEAP, _TIMES = 5e9, 2.5
# Of the elements of the outputs on one probe, such as the scores of attention between all pixels.
_MOST_RESULTS = 2**26
_TOO_MANY = f"returns more than {_MOST_RESULTS / 1e6:.0f} million numbers there"
# Squares of larger values are no numbers of float32, in whatever order a runtime multiplies them.
_HUGE = 1e18


def further_cases(
    inputs: Sequence[ArraySpec],
    limits: Limits,
    free: Mapping[str, Collection[str]],
    parameters: int,
    fill: Callable[[Probe], None],
    longest: int | None = None,
    factor: int = 1,
) -> list[Probe]:
    """Probes of other batches and lengths than the first ones, and of other regions of values.

    Args:
        inputs: tuple of `ArraySpec`.
        limits: as of `make_probes`.
        free: dict of input name to the regions that its values may be in, of `REGIONS`.
        parameters: the number of the model's weights, for the cost.
        fill: fills the values that layers name into a probe, before a region changes them.
        longest: upper limit of every length, or None.
        factor: what usual lengths are multiplied by.

    Returns:
        A list of `Probe` without outputs, the most telling first, up to what an export may cost.
    """
    found: dict[str, Probe] = {}
    left = max(_CHEAP, _TIMES * parameters * 6 * num_elements(inputs, {}))
    for number, case in enumerate(_CASES):
        changes = _changes(inputs, free, case.region)
        if case.region in _OF_VALUES_ALONE and not changes:
            continue
        sizes = _sizes(inputs, number, longest, factor)
        if case.most < math.inf and not sizes.keys() - {"batch", "height", "width"}:
            continue
        cost = parameters * num_elements(inputs, sizes)
        if cost > min(left, case.most):
            continue
        probe = probe_of_sizes(inputs, limits, sizes, case.padded and any(map(is_mask, inputs)))
        fill(probe)
        for name, change in changes.items():
            probe.inputs[name] = change(probe.inputs[name])
        if changes:
            probe.label, probe.region = f"{probe.label}, {case.region}", case.region
        if found.setdefault(probe.label, probe) is probe:
            left -= cost
    return list(found.values())


def resized_probes(inputs: Sequence[ArraySpec], given: Sequence[Probe]) -> list[Probe]:
    """A user's rows in other batches, and cut to lengths between those that were given.

    Args:
        inputs: tuple of `ArraySpec`.
        given: list of `Probe` of the user.
    """
    found: list[Probe] = []
    known = [sizes_of(inputs, probe.inputs) for probe in given]
    for axis in dict.fromkeys(axis for each in known for axis in each):
        sizes = sorted({each[axis] for each in known})
        between = [(low + high) // 2 for low, high in zip(sizes, sizes[1:], strict=False)]
        for size in _BATCHES if axis == "batch" else (*between, sizes[0] // 2):
            if size and size not in sizes:
                arrays = resized_inputs(inputs, given[0], {axis: size})
                parts = [f"{name}={each}" for name, each in sizes_of(inputs, arrays).items()]
                found.append(Probe(arrays, ", ".join([*parts, "given rows"])))
    return found


def add_further(signature: Signature, made: Iterable[Probe], fits: Callable[[Probe], bool]) -> None:
    """Adds those of some probes that the model itself takes, with its outputs; of others, why they are left out.

    Args:
        signature: `Signature` whose probes have outputs.
        made: iterable of `Probe` without outputs.
        fits: whether the model takes the sizes of a probe, and its outputs have the shapes that it says.
    """
    known, most = {probe.label for probe in signature.all_probes}, math.inf
    for probe in made:
        if probe.label not in known:
            known.add(probe.label)
            size = sum(each.size for each in probe.inputs.values())
            reason = _why_not(signature, probe, fits) if size < most else _TOO_MANY
            most = min(size, most) if reason == _TOO_MANY else most
            add(signature, probe, reason)


def add(signature: Signature, probe: Probe, reason: str | None) -> None:
    """Adds a further probe with its outputs, or says why it is left out.

    Args:
        signature: `Signature`.
        probe: `Probe`.
        reason: what the model does there, or None.
    """
    if reason is None:
        signature.further.append(probe)
    else:
        signature.not_shown.append(f"{probe.label}: the model itself {reason}")


def failure(signature: Signature, probe: Probe) -> str | None:
    """What the model does on a probe, which gets its outputs, where it fails; None where it does not.

    Args:
        signature: `Signature`.
        probe: `Probe` without outputs.
    """
    try:
        with captured():  # TensorFlow prints what a failed operation says.
            fill_references(dataclasses.replace(signature, probes=[probe], is_repeatable=True), may_be_nan=True)
    except InvalidModelError:
        return "fails there"
    return None


def _why_not(signature: Signature, probe: Probe, fits: Callable[[Probe], bool]) -> str | None:
    """Why a probe, which gets its outputs, is left out; None if it is not."""
    failed = failure(signature, probe)
    if failed:
        return failed
    if not fits(probe):
        return "takes no such sizes"
    if not all(each.size for each in probe.outputs.values()):
        return "returns nothing there"
    if sum(each.size for each in probe.outputs.values()) > _MOST_RESULTS:
        return _TOO_MANY
    if not is_finite_alike(signature.probes, probe):
        return "is not finite there"
    return "nearly overflows there" if _largest([probe]) > _HUGE >= _largest(signature.probes) else None


def is_finite_alike(first: Sequence[Probe], probe: Probe) -> bool:
    """Whether the outputs are finite that are so in the first probes.

    Args:
        first: list of `Probe` with outputs.
        probe: another one.
    """
    for name, value in probe.outputs.items():
        is_finite = value.dtype.kind != "f" or np.isfinite(value).all()
        if not is_finite and all(np.isfinite(each.outputs[name]).all() for each in first):
            return False
    return True


def _largest(probes: Sequence[Probe]) -> float:
    """The largest finite value of all outputs."""
    floats = [each for probe in probes for each in probe.outputs.values() if each.dtype.kind == "f"]
    return max((float(np.abs(each[np.isfinite(each)]).max(initial=0.0)) for each in floats), default=0.0)


def _sizes(inputs: Sequence[ArraySpec], number: int, longest: int | None, factor: int) -> dict[str, int]:
    """The sizes of the axes in a case. Axes that are lengths have those of different cases."""
    sizes: dict[str, int] = {}
    count = 0
    for axis in dict.fromkeys(axis for spec in inputs for axis in spec.axes if axis):
        if axis == "batch":
            sizes[axis] = _CASES[number].batch
        elif axis in ("height", "width"):
            sizes[axis] = (_SIDES if factor == 1 else _MULTIPLES_OF_32)[(number + (axis == "width")) % 2]
        else:
            length = factor * _CASES[(number + 3 * count) % len(_CASES)].length
            length = max(length, 2) if _CASES[number].batch >= _MANY_ROWS else length
            sizes[axis], count = min(length, longest or length), count + 1
    return sizes


def _changes(inputs: Sequence[ArraySpec], free: Mapping[str, Collection[str]], region: str) -> dict[str, Region]:
    """What a region makes of the usual values of some inputs."""
    found = {spec.name: _change(spec, region) for spec in inputs if region in free.get(spec.name, ())}
    return {name: each for name, each in found.items() if each is not None}


def _change(spec: ArraySpec, region: str) -> Region | None:
    if "float" in spec.dtype and region in _OF_FLOATS:
        return _OF_FLOATS[region] if region != "bytes" or _is_image(spec) else None
    if "int" in spec.dtype and spec.dtype != "uint8" and region in _OF_INTEGERS:
        return _OF_INTEGERS[region]
    return None


def _is_image(spec: ArraySpec) -> bool:
    return len(spec.shape) == 4 and (spec.shape[-1] in _CHANNELS or spec.shape[1] in _CHANNELS)


def _constant_rows(array: np.ndarray) -> np.ndarray:
    """Rows of one value each."""
    if array.ndim < 2:
        return array
    first = array.reshape(len(array), -1)[:, :1] if array.size else array
    return np.broadcast_to(first.reshape(-1, *[1] * (array.ndim - 1)), array.shape).copy()


def _tiny(array: np.ndarray) -> np.ndarray:
    """Values of which every other one is small: what is lost of them shows beside the others."""
    values = array.copy()
    values.reshape(-1)[::2] *= _TINY
    return values


def _integers(most: int) -> Region:
    def drawn(array: np.ndarray) -> np.ndarray:
        random = np.random.default_rng(array.size)
        return random.integers(-most, most + 1, array.shape).astype(array.dtype)

    return drawn


def _bytes(array: np.ndarray) -> np.ndarray:
    return np.random.default_rng(array.size).integers(0, 256, array.shape).astype(array.dtype)


_OF_FLOATS: dict[str, Region] = {
    "large": lambda array: array * np.asarray(_LARGE, array.dtype),
    "tiny": _tiny,
    "zeros": np.zeros_like,
    "constant": _constant_rows,
    "bytes": _bytes,
}
_OF_INTEGERS: dict[str, Region] = {"large": _integers(1000), "tiny": _integers(9)}
# Of all inputs, of those that are normal around a mean, and of those within bounds.
REGIONS, NORMAL, BOUNDED = tuple(_OF_FLOATS), ("large", "zeros", "constant"), ("zeros", "constant")
