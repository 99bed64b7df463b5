"""Convolutions of signals, images and volumes, and what comes with them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from keras_transformer.export.graph.part import Node
from keras_transformer.export.operations.operation import (
    NAN,
    ONNX,
    SAVED_MODEL,
    TFLITE,
    Attributes,
    Decomposed,
    Operation,
    Region,
)
from keras_transformer.export.operations.sizes import size
from keras_transformer.utils.types import Tensor

# Numbers of weights of a depthwise kernel for which XNNPACK has a loop; from the last one on it adds up parts.
_DEPTHWISE_SIZES = (3, 4, 9, 25)


def padded_convolution(
    x: Tensor, kernel: Tensor, *, strides: Sequence[int], dilations: Sequence[int], data_format: str
) -> Tensor:
    """Zeros are around images or volumes, where a kernel needs them.

    Steps above the size of a kernel leave elements out; the converter would give the difference as a negative padding.
    """
    convolve = tf.raw_ops.Conv2D if len(strides) == 4 else tf.raw_ops.Conv3D
    pads: list[list[Tensor | int]] = [[0, 0] for _ in strides]
    for number, axis in enumerate(_spatial_axes(data_format)):
        length, reach = size(x, axis), _reach(kernel.shape[number], dilations[axis])
        missing = tf.maximum((length - 1) // strides[axis] * strides[axis] + reach - length, 0)
        pads[axis] = [missing // 2, missing - missing // 2]
    options = {"strides": strides, "dilations": dilations, "data_format": data_format, "padding": "VALID"}
    return convolve(input=tf.pad(x, pads), filter=kernel, **options)


def unfused_convolution(
    x: Tensor,
    kernel: Tensor,
    *,
    strides: Sequence[int],
    dilations: Sequence[int],
    padding: str,
    explicit_paddings: Sequence[int],
    data_format: str,
) -> Tensor:
    """A convolution of groups of channels that stays apart from a bias: with it TensorFlow has none on some processors."""
    options = {"strides": strides, "dilations": dilations, "padding": padding, "data_format": data_format}
    found = tf.raw_ops.Conv2D(input=x, filter=kernel, explicit_paddings=explicit_paddings, **options)
    return tf.ensure_shape(found, found.shape)


def convolution_of_groups(
    x: Tensor, kernel: Tensor, *, strides: Sequence[int], dilations: Sequence[int], padding: str, data_format: str
) -> Tensor:
    """A convolution of volumes for each group of channels: TensorFlow has none of several on some processors."""
    axis = 1 if data_format.startswith("NC") else 4
    options = {"strides": strides, "dilations": dilations, "padding": padding, "data_format": data_format}
    count = x.shape[axis] // kernel.shape[-2]
    pairs = zip(tf.split(x, count, axis), tf.split(kernel, count, -1), strict=True)
    return tf.concat([tf.raw_ops.Conv3D(input=part, filter=weights, **options) for part, weights in pairs], axis)


def convolution_of_last_channels(
    x: Tensor, kernel: Tensor, *, strides: Sequence[int], dilations: Sequence[int], padding: str
) -> Tensor:
    """A convolution of signals or volumes whose channels come first."""
    strides, dilations = _channels_last(strides), _channels_last(dilations)
    convolve = tf.raw_ops.Conv2D if len(strides) == 4 else tf.raw_ops.Conv3D
    options = {"strides": strides, "dilations": dilations, "padding": padding}
    return _with_first_channels(convolve(input=_with_last_channels(x), filter=kernel, **options))


def transposed_convolution_of_last_channels(
    sizes: Tensor, kernel: Tensor, x: Tensor, *, strides: Sequence[int], dilations: Sequence[int], padding: str
) -> Tensor:
    """A transposed convolution whose channels come first."""
    strides, dilations = _channels_last(strides), _channels_last(dilations)
    convolve = tf.raw_ops.Conv2DBackpropInput if len(strides) == 4 else tf.raw_ops.Conv3DBackpropInputV2
    operands = {"input_sizes": _sizes_last(sizes), "filter": kernel, "out_backprop": _with_last_channels(x)}
    return _with_first_channels(convolve(**operands, strides=strides, dilations=dilations, padding=padding))


def dilated_convolution(x: Tensor, block: Tensor, paddings: Tensor, kernel: Tensor, crops: Tensor) -> Tensor:
    """A convolution with steps within the kernel, in place of one of every such step apart."""
    steps, pads = np.asarray(tf.get_static_value(block)).tolist(), paddings - crops
    # The channels are one of the axes that are taken apart where they come first.
    is_first = len(steps) > x.shape.rank - 2
    if is_first:
        x, steps, pads = _with_last_channels(x), steps[1:], pads[1:]
    is_sequence = len(steps) == 1
    if is_sequence:
        x, steps, pads = tf.expand_dims(x, 1), [1, *steps], tf.pad(pads, [[1, 0], [0, 0]])
    x = tf.pad(x, tf.pad(pads, [[1, 1], [0, 0]]))
    convolve = tf.raw_ops.Conv2D if len(steps) == 2 else tf.raw_ops.Conv3D
    options = {"strides": [1] * (len(steps) + 2), "dilations": [1, *steps, 1], "padding": "VALID"}
    found = convolve(input=x, filter=kernel, **options)
    found = tf.squeeze(found, 1) if is_sequence else found
    return _with_first_channels(found) if is_first else found


def _dilated(node: Node) -> Sequence[str]:
    """The operands of `dilated_convolution`, or none."""
    convolution = _behind(node, "Squeeze")
    is_taken = convolution is not None and (convolution.op == "Conv3D" or _is_of_images(convolution))
    spread = _behind(convolution, "ExpandDims") if convolution is not None and is_taken else None
    if convolution is None or spread is None or spread.op != "SpaceToBatchND" or node.value(1) is None:
        return ()
    is_plain = convolution.attribute("padding") == "VALID" and set(convolution.attribute("strides")) == {1}
    return (*spread.inputs, convolution.inputs[1], node.inputs[2]) if is_plain else ()


def _behind(node: Node, layout: str) -> Node | None:
    """What computes the first operand of a node, or that of an operation in between which adds or removes an axis."""
    found = node.producer(0)
    return found.producer(0) if found is not None and found.op == layout else found


def _is_of_images(convolution: Node) -> bool:
    """Whether a convolution is of images whose channels come first: the converter takes others."""
    return convolution.op == "Conv2D" and _has_first_channels(convolution)


def _is_dilated(node: Node) -> bool:
    return len(_dilated(node)) > 0


def transposed_convolution(
    sizes: Tensor,
    kernel: Tensor,
    x: Tensor,
    *,
    strides: Sequence[int],
    dilations: Sequence[int],
    padding: str,
    data_format: str,
) -> Tensor:
    """The transposed convolution of everything, from which the padding is cut off, or to which zeros are added.

    Without steps within the kernel, and with the channels last.
    """
    is_first = data_format.startswith("NC")
    if is_first:
        x, sizes = _with_last_channels(x), _sizes_last(sizes)
        strides, dilations = _channels_last(strides), _channels_last(dilations)
    reaches = [_reach(length, dilation) for length, dilation in zip(kernel.shape, dilations[1:-1], strict=False)]
    full = _full_spread(kernel, x, dilations) if max(dilations) > 1 else _full(kernel, x, strides)
    begin, end, pads = [tf.constant(0)], [size(full, 0)], [[0, 0]]
    for axis, reach in enumerate(reaches, 1):
        length = (size(x, axis) - 1) * strides[axis] + reach
        cut = tf.maximum(length - sizes[axis], 0) // 2 if padding == "SAME" else tf.constant(0)
        begin.append(cut)
        end.append(tf.minimum(cut + sizes[axis], length))
        pads.append([0, tf.maximum(sizes[axis] - (length - cut), 0)])
    full = tf.strided_slice(full, tf.stack(begin), tf.stack(end))
    found = tf.pad(full, [*pads, [0, 0]])
    return _with_first_channels(found) if is_first else found


def _full(kernel: Tensor, x: Tensor, strides: Sequence[int]) -> Tensor:
    """The transposed convolution to which every element contributes in full."""
    spatial = [(size(x, axis) - 1) * strides[axis] + kernel.shape[axis - 1] for axis in range(1, len(strides) - 1)]
    sizes = tf.stack([size(x, 0), *spatial, kernel.shape[-2]])
    if len(strides) == 4:
        options = {"filter": kernel, "out_backprop": x, "strides": strides, "padding": "VALID"}
        return tf.raw_ops.Conv2DBackpropInput(input_sizes=sizes, **options)
    return tf.nn.conv3d_transpose(x, kernel, sizes, strides, "VALID")


def _full_spread(kernel: Tensor, x: Tensor, dilations: Sequence[int]) -> Tensor:
    """The same of a kernel with steps within: elements that are one such step apart are an image of their own."""
    block = dilations[1:-1]
    missing = [-size(x, axis) % step for axis, step in enumerate(block, 1)]
    parts = tf.space_to_batch(x, block, [[0, each] for each in missing])
    parts = _full(kernel, parts, [1] * len(dilations))
    return tf.batch_to_space(parts, block, [[0, each] for each in missing])


def _reach(length: int, dilation: int) -> int:
    """How many elements lie between the ends of a kernel, with these."""
    return (length - 1) * dilation + 1


def _spatial_axes(data_format: str) -> range:
    first = 2 if data_format.startswith("NC") else 1
    return range(first, first + len(data_format) - 2)


def _channels_last(values: Sequence[int]) -> list[int]:
    """Something of each axis, that of the channels last."""
    batch, channels, *spatial = values
    return [batch, *spatial, channels]


def _sizes_last(sizes: Tensor) -> Tensor:
    return tf.gather(sizes, _channels_last(range(sizes.shape[0])))


def _with_last_channels(x: Tensor) -> Tensor:
    return tf.transpose(x, _channels_last(range(x.shape.rank)))


def _with_first_channels(x: Tensor) -> Tensor:
    return tf.transpose(x, [0, x.shape.rank - 1, *range(1, x.shape.rank - 1)])


def _steps(node: Node, kernel: int) -> Sequence[tuple[int, int]]:
    """The step of a convolution along each axis, and the reach of its kernel there; nothing where that is unknown."""
    shape, axes = node.part.spec(node.inputs[kernel]).shape, _spatial_axes(node.attribute("data_format"))
    if not shape.is_fully_defined() or node.attribute("padding") == "EXPLICIT":
        return ()
    strides, dilations = node.attribute("strides"), node.attribute("dilations") or [1] * 5
    return [(strides[axis], _reach(shape[number], dilations[axis])) for number, axis in enumerate(axes)]


def _leaves_out(node: Node) -> bool:
    return node.attribute("padding") == "SAME" and any(step > reach for step, reach in _steps(node, 1))


def has_steps_beyond_kernel(node: Node) -> bool:
    """Whether steps of a transposed convolution are above its kernel, so that elements between get nothing of it."""
    return any(step > reach for step, reach in _steps(node, 1))


def _leaves_gaps(node: Node) -> bool:
    """Whether there are elements behind those to which a transposed convolution contributes; if sizes are dynamic, not."""
    result, given = (node.part.spec(each).shape for each in (node.message.name, node.inputs[2]))
    axes = _spatial_axes(node.attribute("data_format"))
    lengths = [(result[axis], given[axis]) for axis in axes] if result.rank and given.rank else []
    return any(
        new is not None and old is not None and new > (old - 1) * step + reach
        for (new, old), (step, reach) in zip(lengths, _steps(node, 1), strict=False)
    )


def _has_first_channels(node: Node) -> bool:
    return str(node.attribute("data_format")).startswith("NC")


def _has_computed_sizes(node: Node) -> bool:
    """Whether channels come first, and the sizes of a result are not known: tf2onnx gives it others."""
    return _has_first_channels(node) and node.value(0) is None


def _is_of_signals(node: Node) -> bool:
    """Whether a convolution is one of signals whose channels come first: the converter forgets an axis of it."""
    return _has_first_channels(node) and "Squeeze" in node.readers


def _has_steps_within(node: Node) -> bool:
    """Whether a kernel of a known size has steps of more than one element."""
    return len(_steps(node, 1)) > 0 and max(node.attribute("dilations") or [1]) > 1


def _has_groups(node: Node) -> bool:
    """Whether a kernel has fewer channels than what it is applied to."""
    given, kernel = (node.part.spec(each).shape for each in node.inputs[:2])
    axis = 1 if _has_first_channels(node) else -1
    known = given.rank is not None and kernel.rank is not None and given[axis] is not None
    return known and given[axis] != kernel[-2]


def _has_groups_of_first_channels(node: Node) -> bool:
    return _has_first_channels(node) and _has_groups(node)


def _has_fused_groups(node: Node) -> bool:
    """Whether what reads a convolution of groups may become a part of it."""
    return _has_groups(node) and any(each != "EnsureShape" for each in node.readers)


def _is_filled_up(node: Node) -> bool:
    """Whether XNNPACK gives a depthwise kernel further weights of 0, which make NaN of NaN beside the pixels it is for."""
    count = node.part.spec(node.inputs[1]).shape[:2].num_elements()
    return count is not None and count < _DEPTHWISE_SIZES[-1] and count not in _DEPTHWISE_SIZES


def _of_convolution(attributes: Attributes, inputs: Sequence[Tensor], result: Tensor) -> float:
    return math.prod(inputs[1].shape[:-1])


def _of_depthwise(attributes: Attributes, inputs: Sequence[Tensor], result: Tensor) -> float:
    return math.prod(inputs[1].shape[:2])


def _of_transposed(attributes: Attributes, inputs: Sequence[Tensor], result: Tensor) -> float:
    return math.prod(inputs[1].shape[:-2]) * inputs[1].shape[-1]


_OPTIONS = ("strides", "dilations", "padding")
_PADDED = Decomposed(padded_convolution, ("strides", "dilations", "data_format"), _leaves_out)
_LAST = Decomposed(convolution_of_last_channels, _OPTIONS, _has_first_channels)
_SIGNALS = Decomposed(convolution_of_last_channels, _OPTIONS, _is_of_signals)
_OF_COMPUTED_SIZES = Decomposed(transposed_convolution_of_last_channels, _OPTIONS, _has_computed_sizes)
_LAST_TRANSPOSED = Decomposed(transposed_convolution_of_last_channels, _OPTIONS, _has_first_channels)
_UNFUSED = Decomposed(unfused_convolution, (*_OPTIONS, "explicit_paddings", "data_format"), _has_fused_groups)
_LAST_GROUPS = Decomposed(convolution_of_last_channels, _OPTIONS, _has_groups_of_first_channels)
_GROUPS = Decomposed(convolution_of_groups, (*_OPTIONS, "data_format"), _has_groups)
_DILATED = Decomposed(dilated_convolution, when=_is_dilated, operands=_dilated)
_SPREAD = Decomposed(transposed_convolution, (*_OPTIONS, "data_format"), _has_steps_within)
_GAPS = Decomposed(transposed_convolution, (*_OPTIONS, "data_format"), _leaves_gaps)

OPERATIONS = (
    Operation("BatchToSpaceND", {TFLITE: _DILATED}),
    Operation(
        "Conv2D",
        {SAVED_MODEL: (_LAST_GROUPS, _UNFUSED), TFLITE: _SIGNALS, ONNX: _PADDED},
        rounds=True,
        sum_length=_of_convolution,
        reads_weight=1,
    ),
    Operation(
        "Conv3D",
        {SAVED_MODEL: (_LAST, _GROUPS), TFLITE: (_LAST, _GROUPS), ONNX: (_PADDED, _GROUPS)},
        rounds=True,
        sum_length=_of_convolution,
    ),
    Operation(
        "Conv2DBackpropInput",
        {TFLITE: (_SPREAD, _LAST_TRANSPOSED), ONNX: (_GAPS, _OF_COMPUTED_SIZES)},
        rounds=True,
        sum_length=_of_transposed,
    ),
    Operation(
        "Conv3DBackpropInputV2",
        {TFLITE: _LAST_TRANSPOSED, ONNX: _GAPS},
        rounds=True,
        sum_length=_of_transposed,
    ),
    Operation(
        "DepthwiseConv2dNative",
        rounds=True,
        sum_length=_of_depthwise,
        differs={TFLITE: (Region(NAN, _is_filled_up),)},
    ),
    Operation("FusedBatchNormV3", rounds=True),
)
