"""Lengths of sequences: which inputs of a model share one, and the length that goes past every window, block and chunk.

Two sequences may have a length each; a sequence and its mask have one. So have both axes of a square, such as the matrix of
which nodes of a graph are neighbors.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

import keras

from keras_transformer.backend import keras_private
from keras_transformer.export.data.array_spec import ArraySpec
from keras_transformer.export.data.export_spec import Probe, Signature
from keras_transformer.export.errors import InvalidModelError
from keras_transformer.export.spec.probes import Limits, is_mask, probe_of_sizes
from keras_transformer.export.spec.vocabulary import longest_sequence
from keras_transformer.utils.captured_stderr import captured
from keras_transformer.utils.errors import library_exceptions
from keras_transformer.utils.types import Config, Tensor

_AXIS = "length"
# Of the inputs that are tried with another length, and of the others.
_OTHER, _LENGTH = 7, 5
# More inputs than so many are taken to share theirs: each division of them into two groups is a call.
_MOST_INPUTS = 5
# Past the tiles and tables of 64 and 128 positions that are usual, where a model names none.
_USUAL = 131
_MOST = 1100
# How many times as long as usual probes are, where a model fails on shorter ones.
FACTORS = (1, 8, 64)
_WORDS = ("window", "block_size", "chunk_size", "chunk_length", "segment_length", "max_distance", "bucket_size")


def with_long_probes(
    make: Callable[[int], Signature], inputs: Sequence[ArraySpec], shapes: Sequence[Sequence[int | None]]
) -> Signature:
    """A signature whose probes are as long as the model needs, such as for a frame of a spectrogram.

    Args:
        make: the signature with probes so many times as long as usual.
        inputs: tuple of `ArraySpec`; probes of those without a length, a height or a width are as usual.
        shapes: what the model says of the shape of each output.

    Raises:
        InvalidModelError: the model fails on probes of each length; of the shortest.
    """
    axes = [axis for spec in inputs for axis in spec.axes if axis]
    has_length = any(axis in ("height", "width") or _AXIS in axis for axis in axes)
    found: list[Signature] = []
    failed: list[Exception] = []
    for factor in FACTORS if has_length else (1,):
        try:
            signature = make(factor)
        except library_exceptions(InvalidModelError) as error:
            failed.append(error)
            continue
        if all(has_shapes(probe, shapes) for probe in signature.probes):
            return signature
        found.append(signature)
    if not found:
        raise failed[0]
    return found[0]


def has_shapes(probe: Probe, shapes: Sequence[Sequence[int | None]]) -> bool:
    """Whether a probe's outputs have the shapes that the model says, and elements.

    Args:
        probe: `Probe` with outputs.
        shapes: what the model says of the shape of each output.

    Of a sequence that is shorter than a kernel TensorFlow returns the sequence itself, or nothing.
    """
    values = list(probe.outputs.values())[: len(shapes)]
    return any(value.size for value in values) and all(
        value.ndim == len(shape) and all(size in (None, found) for size, found in zip(shape, value.shape, strict=True))
        for value, shape in zip(values, shapes, strict=True)
    )


def with_own_lengths(
    inputs: Sequence[ArraySpec],
    limits: Limits,
    function: Callable[[dict[str, Tensor]], object],
    given: Mapping[str, object],
) -> tuple[ArraySpec, ...]:
    """The inputs, those whose length the model takes to be independent of that of the others with an axis of their own.

    Args:
        inputs: tuple of `ArraySpec`. Those with the axis `length` are tried with different lengths.
        limits: as of `make_probes`.
        function: the inference of the model, called on small arrays.
        given: names of the inputs whose axes the user has named, which are left as they are.

    Returns:
        Tuple of `ArraySpec`. An axis is named after the first input that has it, `NAME_length`.
    """
    names = [each.name for each in inputs if _AXIS in each.axes]
    is_clear = not 2 <= len(names) <= _MOST_INPUTS or any(name in given for name in names)
    if is_clear or keras.backend.backend() != "tensorflow":
        return tuple(inputs)
    groups = _groups(names, lambda part: _takes(inputs, part, limits, function))
    if len(groups) == 1:
        return tuple(inputs)
    masks = {each.name for each in inputs if is_mask(each)}
    axes = {
        name: f"{next((each for each in group if each not in masks), group[0])}_{_AXIS}"
        for group in groups
        for name in group
    }
    return tuple(_renamed(each, axes[each.name]) if each.name in axes else each for each in inputs)


def with_equal_axes(
    inputs: Sequence[ArraySpec],
    limits: Limits,
    function: Callable[[dict[str, Tensor]], object],
    given: Mapping[str, object],
) -> tuple[ArraySpec, ...]:
    """The inputs, with one name for two axes of which the model takes equal sizes only.

    Args:
        inputs, limits, function, given: as of `with_own_lengths`. Axes that have a number for a name, `axis_2`, are tried.

    Example:

    >>> square = ArraySpec("x", "float32", (None, None, None), ("batch", "axis_1", "length"))
    >>> with_equal_axes([square], {}, lambda tensors: tensors["x"] @ tensors["x"], {})[0].axes
    ('batch', 'length', 'length')
    """
    axes = list(dict.fromkeys(axis for each in inputs for axis in each.axes if axis and axis != "batch"))
    numbered = [axis for axis in axes if axis.startswith("axis_")]
    is_clear = not numbered or len(axes) < 2 or any(each.name in given for each in inputs)
    if is_clear or keras.backend.backend() != "tensorflow":
        return tuple(inputs)
    sizes = {axis: _LENGTH + number for number, axis in enumerate(axes)} | {"batch": 2}
    if _runs(inputs, sizes, limits, function):
        return tuple(inputs)
    for one, other in itertools.product(numbered, axes):
        found = [_renamed(each, other, one) for each in inputs]
        if one != other and _runs(found, sizes, limits, function):
            return tuple(found)
    return tuple(inputs)


def _groups(names: list[str], is_independent: Callable[[Sequence[str]], bool]) -> list[list[str]]:
    """The smallest groups of inputs whose lengths are independent of those of all others."""
    for size in range(1, len(names) // 2 + 1):
        for part in itertools.combinations(names, size):
            if is_independent(part):
                others = [name for name in names if name not in part]
                return sorted([list(part), *_groups(others, is_independent)], key=lambda group: names.index(group[0]))
    return [names]


def _takes(
    inputs: Sequence[ArraySpec], part: Sequence[str], limits: Limits, function: Callable[[dict[str, Tensor]], object]
) -> bool:
    """Whether the model takes some inputs of another length than that of all others."""
    tried = [_renamed(each, "other_length") if each.name in part else each for each in inputs]
    sizes = {axis: 2 if axis == "batch" else _LENGTH for each in inputs for axis in each.axes if axis}
    return _runs(tried, sizes | {"other_length": _OTHER}, limits, function)


def _runs(
    inputs: Sequence[ArraySpec],
    sizes: Mapping[str, int],
    limits: Limits,
    function: Callable[[dict[str, Tensor]], object],
) -> bool:
    """Whether the model takes inputs of some sizes."""
    import tensorflow as tf

    arrays = probe_of_sizes(inputs, limits, sizes, padded=False).inputs
    try:
        with captured():  # TensorFlow warns of the abandoned call.
            function({name: tf.convert_to_tensor(array) for name, array in arrays.items()})
    except library_exceptions():  # Whatever a layer or TensorFlow raises for shapes that do not fit.
        return False
    return True


def _renamed(spec: ArraySpec, axis: str, former: str = _AXIS) -> ArraySpec:
    return dataclasses.replace(spec, axes=tuple(axis if each == former else each for each in spec.axes))


def reaching_length(model: keras.Model) -> int:
    """The length of a sequence that reaches what only long sequences reach.

    That is the longest sequence that the model takes, if this is short enough, and otherwise more than twice the largest
    window, block, chunk or segment that the config of a layer names, up to 1,100 tokens. A layer of recordings names its own
    length in samples, `probe_length`.

    Args:
        model: a built Keras model.

    Example:

    >>> x = keras.Input((None, 8))
    >>> reaching_length(keras.Model(x, keras.layers.Dense(2)(x)))
    131
    """
    layers = keras_private.flatten_layers(model)
    sizes = [size for layer in layers for size in _sizes(_config(layer))]
    length = min(max(_USUAL, 2 * max(sizes, default=0) + 3), _MOST)
    length = max(length, *(getattr(layer, "probe_length", 0) for layer in layers), 0)
    most = longest_sequence(model)
    if most is None:
        return length
    return most if most <= _MOST else length


def _config(layer: keras.layers.Layer) -> Config:
    try:
        return layer.get_config()
    except library_exceptions():  # A layer that cannot be saved can still be exported.
        return {}


def _sizes(config: object) -> Iterator[int]:
    """All sizes in a config, at any depth."""
    if isinstance(config, dict):
        for name, value in config.items():
            is_size = isinstance(value, int) and not isinstance(value, bool)
            if is_size and isinstance(name, str) and any(word in name for word in _WORDS):
                yield value
            else:
                yield from _sizes(value)
    elif isinstance(config, (list, tuple)):
        for value in config:
            yield from _sizes(value)
