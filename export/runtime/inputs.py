"""Checks and casts of the arrays that a signature takes and returns."""

from collections.abc import Mapping, Sequence

import numpy as np

from keras_transformer.export.data.array_spec import ArraySpec
from keras_transformer.export.errors import InputError
from keras_transformer.utils.types import ArrayLike

# As in "source_token_ids"; "input_ids" is the name in transformers.
_TOKEN_IDS = ("token_ids", "input_ids")


def check_inputs(specs: Sequence[ArraySpec], arrays: Mapping[str, ArrayLike]) -> dict[str, np.ndarray]:
    """Arrays in the dtypes of the signature.

    A cast may lose the precision of a float and nothing else: `float64` to `float32`, `int64` to `int32` when every value
    fits, `uint8` to `float32`, 0 and 1 to `bool`. Anything else is an error.

    Args:
        specs: tuple of `ArraySpec`.
        arrays: dict of name to array-like.

    Returns:
        Dict of name to contiguous numpy array.

    Raises:
        InputError: names the input, what was expected and what was received.
    """
    for name in arrays:
        if name not in {spec.name for spec in specs}:
            raise InputError(name, f"one of {', '.join(spec.name for spec in specs)}", "an unknown name")
    checked: dict[str, np.ndarray] = {}
    sizes: dict[str, int] = {}
    for spec in specs:
        if spec.name not in arrays:
            raise InputError(spec.name, spec.describe(), "nothing")
        array = _as_array(spec, arrays[spec.name])
        _check_shape(spec, array, sizes)
        checked[spec.name] = _cast(spec, array)
        _check_ids(spec, checked[spec.name])
    return checked


def _as_array(spec: ArraySpec, value: ArrayLike) -> np.ndarray:
    try:
        array = np.asarray(value)
    except ValueError:
        raise InputError(spec.name, spec.describe(), "a ragged list") from None
    if spec.dtype == "string":
        return _as_texts(spec, array)
    if array.dtype.kind not in "biuf":
        raise InputError(spec.name, spec.describe(), f"dtype {array.dtype}")
    return array


def _as_texts(spec: ArraySpec, array: np.ndarray) -> np.ndarray:
    """Text, UTF-8 in bytes, or objects of these, as TensorFlow and pandas have them, as text."""
    is_text = array.dtype.kind in "US" or all(isinstance(each, (str, bytes)) for each in array.ravel())
    if array.dtype.kind not in "USO" or not is_text:
        raise InputError(spec.name, spec.describe(), f"dtype {array.dtype}")
    try:
        return decoded(array)
    except UnicodeDecodeError:
        raise InputError(spec.name, spec.describe(), "bytes that are no UTF-8") from None


def _check_shape(spec: ArraySpec, array: np.ndarray, sizes: dict[str, int]) -> None:
    fits = array.ndim == len(spec.shape)
    for size, axis, got in zip(spec.shape, spec.axes, array.shape, strict=False):
        fits = fits and (got == size if axis is None else got == sizes.setdefault(axis, got))
    if not fits:
        known = ", ".join(f"{axis}={size}" for axis, size in sizes.items())
        expected = spec.describe() + (f" with {known}" if array.ndim == len(spec.shape) and known else "")
        raise InputError(spec.name, expected, f"{array.dtype} {array.shape}")


def _check_ids(spec: ArraySpec, array: np.ndarray) -> None:
    """Refuses negative token ids, which runtimes count from the end of a table."""
    if spec.name.endswith(_TOKEN_IDS) and array.dtype.kind == "i" and array.size and array.min() < 0:
        raise InputError(spec.name, f"{spec.describe()} of 0 or more", f"the token id {array.min()}")


def _cast(spec: ArraySpec, array: np.ndarray) -> np.ndarray:
    if spec.dtype == "string":
        return array
    target = np.dtype(spec.dtype)
    if array.dtype != target:
        if array.dtype.kind == "f" and target.kind != "f":
            raise InputError(spec.name, spec.describe(), f"dtype {array.dtype}")
        with np.errstate(all="ignore"):
            cast = array.astype(target)
        if array.dtype.kind != "f" and not np.array_equal(cast.astype(array.dtype), array):
            raise InputError(spec.name, spec.describe(), f"{array.dtype} values outside the range of {target}")
        array = cast
    return np.ascontiguousarray(array).reshape(array.shape)


def check_axis_limits(specs: Sequence[ArraySpec], arrays: Mapping[str, np.ndarray], limits: Mapping[str, int]) -> None:
    """Raises where an axis is longer than the model allows.

    Call it when the runtime has failed: a limit is that of some layer, and not every model fails beyond it.

    Args:
        specs: tuple of `ArraySpec`.
        arrays: dict of input name to array.
        limits: dict of axis name to its largest size.

    Raises:
        InputError: names the input, its size and the limit.
    """
    for spec in specs:
        for axis, size in zip(spec.axes, arrays[spec.name].shape, strict=True):
            if axis is not None and size > limits.get(axis, size):
                raise InputError(spec.name, f"{spec.describe()} with {axis} <= {limits[axis]}", f"{axis}={size}")


def decoded(array: np.ndarray) -> np.ndarray:
    """Bytes, or objects of bytes or text, as runtimes return strings, as text; other arrays unchanged."""
    if array.dtype.kind not in "SO":
        return array
    texts = [each.decode("utf-8") if isinstance(each, bytes) else each for each in array.ravel()]
    return np.array(texts, str).reshape(array.shape)


def check_outputs(specs: Sequence[ArraySpec], arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Raises for results that differ from the manifest.

    Args:
        specs: tuple of `ArraySpec`.
        arrays: dict of name to numpy array, as a runtime returns them.

    Returns:
        `arrays`, with strings as text.

    Raises:
        ValueError: names the output, what was expected and what was returned.
    """
    expected = {spec.name for spec in specs}
    if set(arrays) != expected:
        raise ValueError(f"it returns {', '.join(sorted(arrays))}, not {', '.join(sorted(expected))}")
    arrays = {name: decoded(array) for name, array in arrays.items()}
    for spec in specs:
        array = arrays[spec.name]
        has_dtype = array.dtype.kind == "U" if spec.dtype == "string" else array.dtype == spec.dtype
        has_sizes = all(size is None or size == got for size, got in zip(spec.shape, array.shape, strict=False))
        if not has_dtype or array.ndim != len(spec.shape) or not has_sizes:
            raise ValueError(f"output '{spec.name}' is {array.dtype} {array.shape}, not {spec.describe()}")
    return arrays
