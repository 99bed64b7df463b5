"""Signatures of fixed shapes in addition to the dynamic ones, for delegates of TFLite such as XNNPACK and the GPU's."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.export.data.array_spec import ArraySpec
from keras_transformer.export.data.axes import sizes_of
from keras_transformer.export.data.export_spec import Probe, Signature
from keras_transformer.export.errors import InvalidModelError
from keras_transformer.export.formats import formats_with
from keras_transformer.export.spec.probes import fill_references

if TYPE_CHECKING:
    from keras_transformer.export.data.export_spec import ExportSpec


def static_signatures(spec: ExportSpec, sizes: Mapping[str, int] | Iterable[Mapping[str, int]]) -> ExportSpec:
    """Returns an export spec with copies of the default signature of fixed shapes, for TFLite.

    The copy of `serve` for batch 1 and length 128 is named `serve_1x128`, with the sizes in the order of the axes in the
    inputs.

    Args:
        spec: `ExportSpec`; not changed.
        sizes: dict of axis name to size, or a list of such dicts.

    Returns:
        An `ExportSpec` with further signatures.

    Raises:
        InvalidModelError: an axis is unknown or missing, a size is not a positive integer, or the model fails with the
            sizes.

    Example:

    >>> import keras
    >>> from keras_transformer.export.spec.functional import functional_spec
    >>> spec = functional_spec(keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)]))
    >>> list(static_signatures(spec, {"batch": 3}).signatures)
    ['serve', 'serve_3']
    """
    name, signature = next(iter(spec.signatures.items()))
    axes = list(dict.fromkeys(axis for each in signature.inputs for axis in each.axes if axis))
    added = {}
    given: Iterable[Any] = [sizes] if isinstance(sizes, Mapping) else sizes
    for each in given:
        _check_sizes(name, axes, each)
        added[f"{name}_{'x'.join(str(each[axis]) for axis in axes)}"] = _static(name, signature, each)
    return dataclasses.replace(spec, signatures={**spec.signatures, **added})


def _check_sizes(name: str, axes: list[str], sizes: Mapping[str, int]) -> None:
    unknown, missing = sorted(set(sizes) - set(axes)), [axis for axis in axes if axis not in sizes]
    if unknown or missing or not axes:
        what = f"static names {unknown}" if unknown else f"static lacks {missing}"
        raise InvalidModelError(f"{what}; the axes of signature '{name}' are {axes}")
    for axis, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 1:
            raise InvalidModelError(f"static: the size of axis '{axis}' must be a positive integer, not {size!r}")


def _static(name: str, signature: Signature, sizes: Mapping[str, int]) -> Signature:
    inputs = tuple(
        ArraySpec(each.name, each.dtype, _fixed(each, sizes), (None,) * len(each.shape)) for each in signature.inputs
    )
    label = ", ".join(f"{axis}={size}" for axis, size in sizes.items())
    # A padded and an unpadded probe, where the signature has both.
    sources = [signature.probes[0], signature.probes[-1]] if len(signature.probes) > 1 else signature.probes
    probes = [_resized(signature, probe, sizes, f"{label}, {number}") for number, probe in enumerate(sources, 1)]
    formats = formats_with("takes_fixed_shapes")
    static = dataclasses.replace(
        signature, inputs=inputs, probes=probes, outputs=(), formats=formats, general=name, further=[], not_shown=[]
    )
    fill_references(static, may_be_nan=True)
    return static


def _fixed(spec: ArraySpec, sizes: Mapping[str, int]) -> tuple[int | None, ...]:
    return tuple(sizes[axis] if axis else size for axis, size in zip(spec.axes, spec.shape, strict=True))


def _resized(signature: Signature, probe: Probe, sizes: Mapping[str, int], label: str) -> Probe:
    """The probe with each axis cut or repeated to its size; the last value of masks is repeated, which keeps padding."""
    known = {**sizes_of(signature.inputs, probe.inputs), **sizes}
    arrays = {}
    for spec in signature.inputs:
        array = probe.inputs[spec.name]
        shape = tuple(known[axis] if axis else size for axis, size in zip(spec.axes, array.shape, strict=True))
        array = array[tuple(slice(0, size) for size in shape)]
        widths = [(0, size - have) for size, have in zip(shape, array.shape, strict=True)]
        arrays[spec.name] = np.pad(array, widths, mode="edge" if array.dtype == bool else "wrap")
    return Probe(arrays, label)
