"""Probes: the inputs on which every artifact is compared with the Keras model, and what that computes of them."""

import math
import zlib
from collections.abc import Callable, Hashable, Mapping, Sequence

import numpy as np

from keras_transformer.export.data.array_spec import ArraySpec
from keras_transformer.export.data.axes import sizes_of
from keras_transformer.export.data.export_spec import Probe, Signature
from keras_transformer.export.errors import ExportError, InvalidModelError, NotDeterministicError, OptionsError
from keras_transformer.export.remedies import Remedy
from keras_transformer.export.runtime.inputs import decoded
from keras_transformer.export.runtime.precision import full_precision
from keras_transformer.utils.errors import one_line
from keras_transformer.utils.types import ArrayLike, Shape

Limits = Mapping[str, int | None]

# Short and long sizes of each kind of axis, all different, so that no two axes can be confused.
_SIZES = {"height": (48, 72), "width": (64, 56)}
# For networks that halve an image five times, and put what they make of the parts together with what they were.
_MULTIPLES_OF_32 = {"height": (64, 96), "width": (96, 64)}
_LENGTHS = ((5, 17), (7, 13), (6, 19), (9, 15))
_USUAL = _LENGTHS[0][1]
# (batch, which size, whether masks are padded)
_CASES = ((1, 0, False), (1, 1, True), (5, 0, True), (5, 1, False), (5, 1, True))


def make_probes(
    inputs: Sequence[ArraySpec], limits: Limits, longest: int | None = None, factor: int = 1
) -> list[Probe]:
    """Probes of batch sizes 1 and 5, of a short and a long length, padded and unpadded.

    Args:
        inputs: tuple of `ArraySpec`.
        limits: dict of input name to the exclusive upper limit of its integers; two where missing.
        longest: upper limit of every length, or None.
        factor: what usual lengths are multiplied by; above 1, the sizes of images are multiples of 32.

    Returns:
        A list of `Probe` without outputs, without repetitions.
    """
    ranges = _axis_sizes(inputs, longest, factor)
    has_mask = any(is_mask(spec) for spec in inputs)
    seen: set[Hashable] = set()
    probes: list[Probe] = []
    for batch, which, padded in _CASES:
        padded = padded and has_mask
        sizes = {axis: batch if axis == "batch" else pair[which] for axis, pair in ranges.items()}
        key = (tuple(sizes.items()), padded)
        if key not in seen:
            seen.add(key)
            probes.append(probe_of_sizes(inputs, limits, sizes, padded))
    return probes


def longest_sizes(inputs: Sequence[ArraySpec], factor: int) -> dict[str, int]:
    """The sizes of the axes of the largest of the probes of `make_probes`.

    Args:
        inputs, factor: as of `make_probes`.
    """
    return {axis: long for axis, (_, long) in _axis_sizes(inputs, None, factor).items()}


def num_elements(inputs: Sequence[ArraySpec], sizes: Mapping[str, int]) -> int:
    """The number of elements of all inputs, of one row and a usual length where a size is not given.

    Args:
        inputs: tuple of `ArraySpec`.
        sizes: dict of axis to size.
    """
    return sum(
        math.prod(sizes.get(axis, 1 if axis == "batch" else _USUAL) if axis else size or 1 for axis, size in pairs)
        for pairs in (zip(spec.axes, spec.shape, strict=True) for spec in inputs)
    )


def reaching_probes(inputs: Sequence[ArraySpec], limits: Limits, length: int) -> list[Probe]:
    """A probe of one row of a length beyond those of `make_probes`, or none if nothing has a length.

    Its masks have a gap in the last quarter, so that they are read there, and the last position is seen as well.

    Args:
        inputs: tuple of `ArraySpec`.
        limits: as of `make_probes`.
        length: size of every axis that is a length.

    Returns:
        A list of up to one `Probe` without outputs.
    """
    ranges = _axis_sizes(inputs, None)
    lengths = {axis for axis in ranges if "length" in axis}
    if not lengths or length <= max(ranges[axis][1] for axis in lengths):
        return []
    others = {axis: 1 if axis == "batch" else pair[0] for axis, pair in ranges.items()}
    probe = probe_of_sizes(inputs, limits, others | dict.fromkeys(lengths, length), False)
    for spec in inputs:
        if is_mask(spec) and spec.axes and spec.axes[-1] in lengths:
            probe.inputs[spec.name][..., 3 * length // 4 : 7 * length // 8] = False
    return [probe]


def check_given(given: object, names: Sequence[str]) -> None:
    """Refuses probes that are no list of dicts.

    Args:
        given: `probes` of `export`.
        names: names of the inputs.

    Raises:
        OptionsError: shows the argument to pass.

    Example:

    >>> check_given([{"x": np.ones((2, 4))}], ["x"])
    """
    if isinstance(given, (list, tuple)) and all(isinstance(each, Mapping) for each in given):
        return
    keys = list(given) if isinstance(given, Mapping) else names
    example = ", ".join(f"{key!r}: {key if str(key).isidentifier() else 'array'}" for key in keys)
    found = (
        "a list with an element that is no dict" if isinstance(given, (list, tuple)) else f"a {type(given).__name__}"
    )
    raise OptionsError(f"probes must be a list of dicts, such as probes=[{{{example}}}]. Received: {found}")


def user_probes(
    inputs: Sequence[ArraySpec],
    limits: Limits,
    given: Sequence[Mapping[str, ArrayLike]],
    fill: Callable[[Probe], None] = lambda probe: None,
) -> list[Probe]:
    """Probes from the user's list, of dicts of input arrays or of axis sizes.

    Args:
        inputs: tuple of `ArraySpec`.
        limits: as of `make_probes`.
        given: the list.
        fill: fills further values into a probe of sizes.

    Raises:
        InvalidModelError: a probe names neither every input nor axes only.
    """
    names = {spec.name for spec in inputs}
    axes = {axis for spec in inputs for axis in spec.axes if axis}
    defaults = {axis: 2 if axis == "batch" else pair[0] for axis, pair in _axis_sizes(inputs, None).items()}
    probes = []
    for number, probe in enumerate(given):
        if set(probe) == names:
            arrays = {each.name: np.asarray(probe[each.name], _numpy_dtype(each)) for each in inputs}
            probes.append(Probe(arrays, _label(sizes_of(inputs, arrays), False)))
        elif probe and set(probe) <= axes:
            for padded in (False, True) if any(is_mask(spec) for spec in inputs) else (False,):
                probes.append(probe_of_sizes(inputs, limits, {**defaults, **probe}, padded))
                fill(probes[-1])
        else:
            raise InvalidModelError(
                f"probe {number} has {sorted(probe)}; it must have either the inputs {sorted(names)}"
                f" or sizes of the axes {sorted(axes)}"
            )
    return probes


def fill_references(
    signature: Signature,
    cause: Callable[[Callable[[], object]], str] | None = None,
    may_be_nan: bool = False,
) -> None:
    """Runs a signature's own function on every probe, whose `outputs` become its results.

    A probe that has outputs, since signatures of the same function share it, is left as it is. A signature that computes
    what another one does is not called a second time.

    Args:
        signature: `Signature`.
        cause: says why two calls return other values, given a function that makes one.
        may_be_nan: bool. Whether NaN is a result like others.

    Raises:
        InvalidModelError: the function fails on a probe, computes NaN or a complex number, or returns other values in a
            second call, a `NotDeterministicError`.
    """
    with full_precision():
        for probe in (each for each in signature.probes if not each.outputs):
            probe.outputs = reference(signature, probe)
            for name, value in probe.outputs.items():
                if value.dtype.kind == "c":
                    raise InvalidModelError(
                        f"output '{name}' is complex: return both parts, keras.ops.view_as_real of it"
                    )
                if not may_be_nan and value.dtype.kind == "f" and np.isnan(value).any():
                    raise InvalidModelError(
                        f"the model itself computes NaN in output '{name}' on {probe.label}", Remedy.FINITE
                    )
        if signature.general is not None or signature.is_repeatable:
            return
        first = signature.probes[0]
        again = reference(signature, first)
    for name, value in first.outputs.items():
        if not _is_near(value, again[name]):
            raise NotDeterministicError(
                f"the model itself is not deterministic: output '{name}' differs between two calls in inference mode"
                + (f": {cause(lambda: reference(signature, first))}" if cause else ""),
                Remedy.RANDOM,
            )


def check_finite(probes: Sequence[Probe]) -> None:
    """Refuses outputs that are NaN wherever they were computed. Of others a file has NaN where Keras has it.

    Args:
        probes: list of `Probe` with outputs.

    Raises:
        InvalidModelError: names the output.
    """
    for name in probes[0].outputs:
        values = np.concatenate([probe.outputs[name].ravel() for probe in probes])
        if values.dtype.kind == "f" and values.size and np.isnan(values).all():
            raise InvalidModelError(
                f"the model itself computes NaN in output '{name}' on {probes[0].label}, and on every other probe",
                Remedy.FINITE,
            )


def reference(signature: Signature, probe: Probe) -> dict[str, np.ndarray]:
    """What the function of a signature computes on a probe.

    Raises:
        InvalidModelError: it fails.
    """
    import tensorflow as tf

    try:
        outputs = signature.function({name: tf.convert_to_tensor(array) for name, array in probe.inputs.items()})
    except ExportError:
        raise
    except Exception as error:  # A user's own layer may raise anything.
        raise InvalidModelError(
            f"the model itself fails on the probe {probe.label}: {one_line(error)}",
            Remedy.PROBES,
            arrays=", ".join(f"'{name}': {name}" for name in probe.inputs),
        ) from error
    return {name: decoded(np.asarray(value)) for name, value in outputs.items()}


def _is_near(array: np.ndarray, other: np.ndarray) -> bool:
    if array.dtype.kind == "U":
        return np.array_equal(array, other)
    return np.allclose(array, other, rtol=1e-3, atol=1e-5, equal_nan=True)


def probe_of_sizes(inputs: Sequence[ArraySpec], limits: Limits, sizes: Mapping[str, int], padded: bool) -> Probe:
    """One probe with these sizes of the axes. Its values depend on the names and sizes only.

    Floats are standard normal, but between 0.5 and 2 in an input with a name that ends in "_rate", and between 0 and 1 in
    one with a name that begins with "uniform_noise".
    """
    label = _label(sizes, padded)
    arrays = {}
    for spec in inputs:
        shape = tuple(sizes[axis] if axis else size for axis, size in zip(spec.axes, spec.shape, strict=True))
        random = np.random.default_rng(zlib.crc32(f"{spec.name} {label}".encode()))
        arrays[spec.name] = _values(spec, shape, limits.get(spec.name), padded, random)
    return Probe(arrays, label)


def is_mask(spec: ArraySpec) -> bool:
    """Whether an input is a mask: boolean, or with a name that ends in "mask"."""
    return spec.dtype == "bool" or spec.name.endswith("mask")


def _values(spec: ArraySpec, shape: Shape, limit: int | None, padded: bool, random: np.random.Generator) -> np.ndarray:
    if spec.dtype == "string":
        return np.full(shape, "")
    if is_mask(spec):
        return (_padded_mask(shape) if padded else np.ones(shape)).astype(spec.dtype)
    if "int" in spec.dtype:
        values = random.integers(0, limit or 2, shape).astype(spec.dtype)
        values.reshape(-1)[:2] = [0, (limit or 2) - 1][: values.size]  # The ends of the table.
        return values
    if spec.name.endswith("_rate"):
        return random.uniform(0.5, 2.0, shape).astype(spec.dtype)
    if spec.name.startswith("uniform_noise"):
        return random.random(shape).astype(spec.dtype)
    return random.standard_normal(shape).astype(spec.dtype)


def _numpy_dtype(spec: ArraySpec) -> str:
    return "str" if spec.dtype == "string" else spec.dtype


def _padded_mask(shape: Shape) -> np.ndarray:
    """A mask that is True on a part of the last axis: about half in the first row, other lengths >= 1 in later rows.

    The first and every other row are padded on the right, the others on the left.
    """
    length = shape[-1] if shape else 1
    rows = np.arange(shape[0]) if len(shape) > 1 else np.zeros(1, int)
    kept = 1 + (length // 2 + 3 * rows) % max(length - 1, 1)
    mask = np.arange(length) < kept[:, None]
    mask[1::2] = mask[1::2, ::-1]
    if len(shape) <= 1:
        return mask.reshape(shape) if shape else np.ones(())
    return np.broadcast_to(mask.reshape(shape[:1] + (1,) * (len(shape) - 2) + (length,)), shape)


def _axis_sizes(inputs: Sequence[ArraySpec], longest: int | None, factor: int = 1) -> dict[str, tuple[int, int]]:
    """Dict of dynamic axis to its (short, long) size."""
    ranges: dict[str, tuple[int, int]] = {}
    for axis in dict.fromkeys(axis for spec in inputs for axis in spec.axes if axis):
        if axis == "batch" or axis in _SIZES:
            ranges[axis] = (_SIZES if factor == 1 else _MULTIPLES_OF_32).get(axis, (1, 5))
        else:
            lengths = _LENGTHS[len(ranges.keys() - {"batch"}) % len(_LENGTHS)]
            short, long = (min(size * factor, longest or size * factor) for size in lengths)
            ranges[axis] = short, long
    return ranges


def _label(sizes: Mapping[str, object], padded: bool) -> str:
    parts = [f"{axis}={size}" for axis, size in sizes.items()]
    return ", ".join(parts + ["padded"] * padded) or "fixed shape"
