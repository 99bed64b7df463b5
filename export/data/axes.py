"""Names of dynamic axes. Axes of the same name have the same size."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from keras_transformer.export.data.array_spec import ArraySpec
from keras_transformer.export.errors import InvalidModelError
from keras_transformer.export.remedies import Remedy
from keras_transformer.utils.types import Shape

# Ranks of what comes for several images of each row.
_OF_IMAGES = {"patches": 5, "patch_grid": 3}
_SIDES = ("source", "target", "encoder", "decoder", "frame")


def axis_names(name: str, shape: Shape, overrides: Mapping[int, str] | None = None) -> tuple[str | None, ...]:
    """Names the dynamic axes of one input.

    Axis 0 is `batch`. Both middle axes of a rank 4 input are `height` and `width`. `length` is axis 1, or the last of an
    input `(B, C, T)` of several texts each, and every axis of a mask that is not one of padding; any other is `axis_k`, as
    is axis 1 of several images each, `(B, I, height, width, channels)`.
    Axis 1 of `patches` `(B, P, F)` and of `patch_mask` is `patches`; of `patches` and `patch_grid` of several images each it
    is `images`, and axis 2 of such patches is `windows`.
    Axis 1 of an input named `prompt_...`, for several prompts of each image, is `prompts`, and its axis 2 `length`.
    The length of an input named `source_...`, `target_...`, `encoder_...`, `decoder_...` or `frame_...` is `source_length`
    and so on.

    Args:
        name: name of the input.
        shape: its shape, None where dynamic.
        overrides: dict of axis index to name, instead of the default one.

    Returns:
        A tuple with a name for each dynamic axis and None for each fixed one.

    Raises:
        InvalidModelError: an override names an axis that is not dynamic.
    """
    overrides = {index % max(len(shape), 1): axis for index, axis in (overrides or {}).items()}
    for index in overrides:
        if index >= len(shape) or shape[index] is not None:
            raise InvalidModelError(f"dynamic_axes names axis {index} of input '{name}', which is fixed: shape {shape}")
    return tuple(
        overrides.get(index) or _default(name, shape, index) if size is None else None
        for index, size in enumerate(shape)
    )


def _default(name: str, shape: Shape, index: int) -> str:
    if index == 0:
        return "batch"
    if name.startswith("prompt_") and index in (1, 2):
        return ("prompts", "length")[index - 1]
    if len(shape) == _OF_IMAGES.get(name) and index in (1, 2):
        return ("images", "windows")[index - 1]
    if index == 1 and name in ("patches", "patch_mask"):
        return "patches"
    if len(shape) == 4 and shape[1] is None and shape[2] is None and not name.endswith("mask"):
        return ("height", "width", "axis_3")[index - 1]
    square = name.endswith("mask") and not name.endswith("padding_mask")
    if square or (index == (2 if shape[1:] == (None, None) else 1) and len(shape) < 5):
        side = name.split("_", 1)[0]
        return f"{side}_length" if side in _SIDES and side != name else "length"
    return f"axis_{index}"


def output_axes(
    name: str, shape: Shape, probes: Sequence[tuple[Mapping[str, int], Sequence[int]]]
) -> tuple[str | None, ...]:
    """Names the dynamic axes of one output by matching its sizes to those of the inputs over all probes.

    An axis of another size is named after the output: `NAME_length`, or `NAME_height` and `NAME_width` for the middle axes
    of rank 4, and `NAME_axis_k` otherwise.

    Args:
        name: name of the output.
        shape: its traced shape, None where dynamic.
        probes: list of `(sizes, output shape)`, `sizes` being a dict of what `sizes_of` and `numbers_of` return.

    Returns:
        A tuple with a name for each dynamic axis and None for each fixed one.

    Example:

    >>> probes = [({"batch": 2, "max_new_tokens": 4}, (2, 4, 9)), ({"batch": 3, "max_new_tokens": 5}, (3, 5, 8))]
    >>> output_axes("y", (None, None, None), probes)
    ('batch', 'max_new_tokens', 'y_axis_2')
    """
    names: list[str | None] = []
    for index, size in enumerate(shape):
        if size is not None:
            names.append(None)
            continue
        matches = [axis for axis in probes[0][0] if all(sizes[axis] == got[index] for sizes, got in probes)]
        if index > 0 and len(matches) > 1:
            matches = [axis for axis in matches if axis != "batch"]
        names.append(matches[0] if matches else _own_axis(name, shape, index))
    return tuple(names)


def _own_axis(name: str, shape: Shape, index: int) -> str:
    """The name of an axis of an output that no input has."""
    if len(shape) == 4 and shape[1] is None and shape[2] is None and index in (1, 2):
        return f"{name}_{('height', 'width')[index - 1]}"
    return f"{name}_length" if index == 1 and len(shape) < 4 else f"{name}_axis_{index}"


def sizes_of(inputs: Iterable[ArraySpec], arrays: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Size of every dynamic axis in a dict of input arrays.

    Raises:
        InvalidModelError: two inputs disagree on the size of an axis they share.
    """
    sizes: dict[str, int] = {}
    for spec in inputs:
        for index, (axis, size) in enumerate(zip(spec.axes, arrays[spec.name].shape, strict=True)):
            if axis is not None and sizes.setdefault(axis, size) != size:
                message = f"input '{spec.name}' has {size} along axis '{axis}', another input has {sizes[axis]}"
                raise InvalidModelError(message, Remedy.AXES, name=spec.name, index=index, axis=axis)
    return sizes


def numbers_of(inputs: Iterable[ArraySpec], arrays: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Values of the inputs that are single integers, such as `max_new_tokens`, which may be the size of an output."""
    return {
        spec.name: int(arrays[spec.name]) for spec in inputs if spec.shape == () and np.dtype(spec.dtype).kind in "iu"
    }
