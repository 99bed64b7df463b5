"""Arrays on their way into a signature and out of it: checked, and cast where nothing is lost."""

import numpy as np

from keras_transformer.export.errors import InputError


def check_inputs(specs, arrays):
    """Arrays as the signature wants them.

    A cast is made when it loses nothing but the precision of a float: `float64` to `float32`, `int64` to `int32` when
    every value fits, `uint8` to `float32`, 0 and 1 to `bool`. Anything else is an error.

    Args:
        specs: tuple of `ArraySpec`.
        arrays: dict of name to array-like.

    Returns:
        Dict of name to contiguous numpy array.

    Raises:
        InputError: names the input, what was expected and what came.
    """
    for name in arrays:
        if name not in {spec.name for spec in specs}:
            raise InputError(name, f"one of {', '.join(spec.name for spec in specs)}", "an unknown name")
    checked, sizes = {}, {}
    for spec in specs:
        if spec.name not in arrays:
            raise InputError(spec.name, spec.describe(), "nothing")
        array = _as_array(spec, arrays[spec.name])
        _check_shape(spec, array, sizes)
        checked[spec.name] = _cast(spec, array)
    return checked


def _as_array(spec, value):
    try:
        array = np.asarray(value)
    except ValueError:
        raise InputError(spec.name, spec.describe(), "a ragged list") from None
    if spec.dtype == "string" and array.dtype.kind in "US":
        return array
    if spec.dtype == "string" or array.dtype.kind not in "biuf":
        raise InputError(spec.name, spec.describe(), f"dtype {array.dtype}")
    return array


def _check_shape(spec, array, sizes):
    fits = array.ndim == len(spec.shape)
    for size, axis, got in zip(spec.shape, spec.axes, array.shape, strict=False):
        fits = fits and (got == size if axis is None else got == sizes.setdefault(axis, got))
    if not fits:
        known = ", ".join(f"{axis}={size}" for axis, size in sizes.items())
        expected = spec.describe() + (f" with {known}" if array.ndim == len(spec.shape) and known else "")
        raise InputError(spec.name, expected, f"{array.dtype} {array.shape}")


def _cast(spec, array):
    if spec.dtype == "string":
        return array
    target = np.dtype(spec.dtype)
    if array.dtype != target:
        if array.dtype.kind == "f" and target.kind != "f":
            raise InputError(spec.name, spec.describe(), f"dtype {array.dtype}")
        with np.errstate(all="ignore"):
            cast = array.astype(target)
        if array.dtype.kind != "f" and not np.array_equal(cast.astype(array.dtype), array):
            raise InputError(spec.name, spec.describe(), f"{array.dtype} values that {target} cannot hold")
        array = cast
    return np.ascontiguousarray(array).reshape(array.shape)


def check_outputs(specs, arrays):
    """Refuses results that are not what the manifest says.

    Args:
        specs: tuple of `ArraySpec`.
        arrays: dict of name to numpy array.

    Returns:
        `arrays`.

    Raises:
        ValueError: names the output, what was expected and what came.
    """
    if set(arrays) != {spec.name for spec in specs}:
        raise ValueError(f"it gives {', '.join(sorted(arrays))}, not {', '.join(sorted(spec.name for spec in specs))}")
    for spec in specs:
        array = arrays[spec.name]
        has_dtype = array.dtype.kind == "U" if spec.dtype == "string" else array.dtype == spec.dtype
        has_sizes = all(size is None or size == got for size, got in zip(spec.shape, array.shape, strict=False))
        if not has_dtype or array.ndim != len(spec.shape) or not has_sizes:
            raise ValueError(f"output '{spec.name}' is {array.dtype} {array.shape}, not {spec.describe()}")
    return arrays
