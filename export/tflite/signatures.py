"""Signatures of fixed shapes beside the dynamic ones: faster, taken whole by XNNPACK, and what GPU delegates ask for."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from keras_transformer.export.errors import InvalidModelError
from keras_transformer.export.formats import formats_with
from keras_transformer.export.spec.axes import sizes_of
from keras_transformer.export.spec.export_spec import ArraySpec, Probe, Signature


def static_signatures(spec, sizes):
    """An export spec whose default signature has copies of fixed shapes, for TFLite.

    The copy of `serve` for a batch of 1 and a length of 128 is named `serve_1x128`: the sizes of the axes in the order in
    which the inputs name them.

    Args:
        spec: `ExportSpec`; not changed.
        sizes: dict of axis name to size, or a list of such dicts.

    Returns:
        An `ExportSpec` with further signatures.

    Raises:
        InvalidModelError: an axis that the signature does not have, one that is left out, a size that is not a positive
            whole number, or sizes with which the model fails.

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
    for each in [sizes] if isinstance(sizes, Mapping) else sizes:
        _check_sizes(name, axes, each)
        added[f"{name}_{'x'.join(str(each[axis]) for axis in axes)}"] = _static(signature, each)
    return dataclasses.replace(spec, signatures={**spec.signatures, **added})


def fitting_signature(signatures, default, arrays):
    """Name of the signature that runs some arrays fastest: the one of exactly their shapes, else the default.

    Args:
        signatures: dict of signature name to its tuple of input `ArraySpec`.
        default: name of the signature that takes every shape.
        arrays: dict of input name to array.

    Returns:
        str.

    Example:

    >>> exact = (ArraySpec("x", "float32", (1, 4), (None, None)),)
    >>> fitting_signature({"serve_1": exact}, "serve", {"x": np.ones((1, 4))})
    'serve_1'
    """
    shapes = {name: tuple(np.shape(array)) for name, array in arrays.items()}
    for name, inputs in signatures.items():
        is_copy = name.startswith(f"{default}_") and not any(axis for each in inputs for axis in each.axes)
        if is_copy and {each.name: tuple(each.shape) for each in inputs} == shapes:
            return name
    return default


def _check_sizes(name, axes, sizes):
    unknown, missing = sorted(set(sizes) - set(axes)), [axis for axis in axes if axis not in sizes]
    if unknown or missing or not axes:
        what = f"static names {unknown}" if unknown else f"static lacks {missing}"
        raise InvalidModelError(f"{what}; the axes of signature '{name}' are {axes}")
    for axis, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 1:
            raise InvalidModelError(f"static: the size of axis '{axis}' must be a positive integer, not {size!r}")


def _static(signature, sizes):
    from keras_transformer.export.spec.functional import fill_references

    inputs = tuple(
        ArraySpec(each.name, each.dtype, _fixed(each, sizes), (None,) * len(each.shape)) for each in signature.inputs
    )
    label = ", ".join(f"{axis}={size}" for axis, size in sizes.items())
    # One probe that is padded and one that is not, where the signature has both.
    sources = [signature.probes[0], signature.probes[-1]] if len(signature.probes) > 1 else signature.probes
    probes = [_resized(signature, probe, sizes, f"{label}, {number}") for number, probe in enumerate(sources, 1)]
    static = Signature(signature.function, inputs, probes, formats=formats_with("takes_fixed_shapes"))
    fill_references(static)
    return static


def _fixed(spec, sizes):
    return tuple(sizes[axis] if axis else size for axis, size in zip(spec.axes, spec.shape, strict=True))


def _resized(signature, probe, sizes, label):
    """The probe with each axis cut, or repeated, to its size; masks go on as they end, and so stay padded at the end."""
    known = {**sizes_of(signature.inputs, probe.inputs), **sizes}
    arrays = {}
    for spec in signature.inputs:
        array = probe.inputs[spec.name]
        shape = tuple(known[axis] if axis else size for axis, size in zip(spec.axes, array.shape, strict=True))
        array = array[tuple(slice(0, size) for size in shape)]
        widths = [(0, size - have) for size, have in zip(shape, array.shape, strict=True)]
        arrays[spec.name] = np.pad(array, widths, mode="edge" if array.dtype == bool else "wrap")
    return Probe(arrays, label)
