"""Checks and casts of the arrays that a signature takes and returns."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from keras_transformer.export.data.array_spec import ArraySpec
from keras_transformer.export.errors import InputError, UnknownInputError
from keras_transformer.export.graph.interface_names import identifier
from keras_transformer.utils.types import ArrayLike

# As in "source_token_ids"; "input_ids" is the name in transformers.
_TOKEN_IDS = ("token_ids", "input_ids")
# Keras's names of an input that was given none. Their numbers depend on how many models were built before.
_AUTOMATIC = re.compile(r"(keras_tensor|input_layer)(_\d+)?")
# That of the only input of such a model in a bundle.
_ONLY_INPUT = "input"


def named_arrays(
    specs: Sequence[ArraySpec], arrays: Sequence[ArrayLike], named: Mapping[str, ArrayLike]
) -> dict[str, ArrayLike]:
    """The arrays of a call by the names of the inputs, not checked.

    Args:
        specs: tuple of `ArraySpec`, in the order in which Keras flattens the inputs of the model.
        arrays: the positional arguments: arrays, or lists, tuples and dicts of them, nested as the model takes them.
        named: arrays by name.

    Raises:
        InputError: there are more arrays without a name than inputs, or fewer.

    Example:

    >>> left, right = (ArraySpec(name, "float32", (None,), ("batch",)) for name in ("left", "right"))
    >>> named_arrays([left, right], [[[1.0], [2.0]]], {})
    {'left': [1.0], 'right': [2.0]}
    """
    names = [spec.name for spec in specs]
    found = {_name(path, names): array for path, array in _leaves(named, names)}
    rest = [spec for spec in specs if spec.name not in found]
    unnamed: list[ArrayLike] = []
    for path, array in _positional(rest, arrays, names):
        if any(isinstance(part, str) for part in path):
            found[_name(path, names)] = array
        else:
            unnamed.append(array)
    free = [name for name in names if name not in found]
    if unnamed and len(unnamed) != len(free):
        raise InputError("(unnamed)", f"{', '.join(names)}, in this order or in a dict", f"{len(unnamed)} arrays")
    return found | dict(zip(free, unnamed, strict=False))


_Path: TypeAlias = tuple[str | int, ...]


def _positional(
    specs: Sequence[ArraySpec], arrays: Sequence[ArrayLike], names: Sequence[str]
) -> list[tuple[_Path, ArrayLike]]:
    """The arrays in the positional arguments of a call, with their paths."""
    items = arrays[0] if len(arrays) == 1 else list(arrays)
    if isinstance(items, Mapping):
        return _leaves(items, names)
    if len(arrays) == 1 and (len(specs) == 1 or not isinstance(items, (list, tuple))):
        is_wrapped = isinstance(items, (list, tuple)) and len(items) == 1 and _rank(items[0]) == len(specs[0].shape)
        items = items if is_wrapped else [items]
    if len(items) == len(specs) and not any(isinstance(each, Mapping) for each in items):
        return [((), each) for each in items]
    return _leaves(items, names)


def _rank(value: ArrayLike) -> int | None:
    """The number of axes of what may be an array."""
    try:
        return np.ndim(value)
    except ValueError:  # A ragged list.
        return None


def _name(path: _Path, names: Sequence[str]) -> str:
    """The name of the input at a path of a structure: the path itself, or the identifier that it was made into."""
    return own_name("_".join(map(str, path)), names)


def own_name(name: str, names: Iterable[str]) -> str:
    """The name of an input in a bundle, by its name in the Keras model.

    Args:
        name: a name in the bundle, which is returned as it is; the Keras model's, which need not be an identifier; or, for
            the only input of a model that gave it no name, any of Keras's automatic ones.
        names: the names of the inputs in the bundle.

    Example:

    >>> own_name("left-right", ["left_right"]), own_name("keras_tensor_7", ["input"]), own_name("image", ["input"])
    ('left_right', 'input', 'image')
    """
    names = list(names)
    if name in names:
        return name
    found = identifier(name, "input")
    if found in names:
        return found
    return _ONLY_INPUT if names == [_ONLY_INPUT] and _AUTOMATIC.fullmatch(name) else name


def _leaves(value: ArrayLike, names: Sequence[str], path: _Path = ()) -> list[tuple[_Path, ArrayLike]]:
    """The arrays in a structure with their paths, in the order of `keras.tree.flatten`. Lists of numbers are arrays."""
    if any(isinstance(part, str) for part in path) and _name(path, names) in names:
        return [(path, value)]
    if isinstance(value, Mapping):
        parts: list[tuple[str | int, ArrayLike]] = [(str(key), value[key]) for key in sorted(value, key=str)]
    elif isinstance(value, (list, tuple)) and (not path or any(_is_part(each) for each in value)):
        parts = list(enumerate(value))
    else:
        return [(path, value)]
    return [leaf for key, part in parts for leaf in _leaves(part, names, (*path, key))]


def _is_part(value: ArrayLike) -> bool:
    """Whether what is in a list makes that a list of arrays, and not an array itself."""
    return isinstance(value, Mapping) or bool(getattr(value, "shape", ()))


def drawn_arrays(
    specs: Sequence[ArraySpec], given: Mapping[str, ArrayLike], kinds: Mapping[str, str]
) -> dict[str, np.ndarray]:
    """Random numbers for those inputs of a call that are made of them and were not given.

    Args:
        specs: tuple of `ArraySpec`.
        given: dict of input name to array, not checked.
        kinds: dict of input name to `"normal"` or `"uniform"`.
    """
    wanted = [spec for spec in specs if spec.name in kinds.keys() - given.keys()]
    if not wanted:
        return {}
    sizes: dict[str, int] = {}
    for spec in specs:
        if spec.name in given:
            shape = np.shape(given[spec.name])
            sizes.update({axis: size for axis, size in zip(spec.axes, shape, strict=False) if axis})
    random, drawn = np.random.default_rng(), {}
    for spec in wanted:
        shape = tuple(sizes.get(axis, 1) if axis else size for axis, size in zip(spec.axes, spec.shape, strict=True))
        values = random.standard_normal(shape) if kinds[spec.name] == "normal" else random.random(shape)
        drawn[spec.name] = values.astype(spec.dtype)
    return drawn


def check_inputs(specs: Sequence[ArraySpec], arrays: Mapping[str, ArrayLike]) -> dict[str, np.ndarray]:
    """Arrays in the dtypes of the signature.

    A cast may lose the precision of a float and nothing else: `float64` to `float32`, `int64` to `int32` when every value
    fits, `uint8` to `float32`, 0 and 1 to `bool`. Anything else is an error.

    Args:
        specs: tuple of `ArraySpec`.
        arrays: dict of name to array-like; see `own_name` for the names.

    Returns:
        Dict of name to contiguous numpy array.

    Raises:
        InputError: names the input, what was expected and what was received.
    """
    names = [spec.name for spec in specs]
    arrays = {own_name(name, names): array for name, array in arrays.items()}
    for name in arrays:
        if name not in names:
            raise UnknownInputError(name, names)
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
    """The results in the order of the signature.

    Args:
        specs: tuple of `ArraySpec`.
        arrays: dict of name to numpy array, as a runtime returns them.

    Returns:
        Dict of name to numpy array, with strings as text, in the order of `specs`: runtimes sort them, or do not say in
        which order they are.

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
    return {spec.name: arrays[spec.name] for spec in specs}
