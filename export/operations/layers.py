"""Layers of Keras whose form in TensorFlow is the obstacle: they are replaced while a signature is traced.

`AS_IN_PREDICT` is for every call of a model, `EVERYWHERE` for all formats, and `BY_FORMAT` for formats whose converter does
not take what Keras traces, or that have an operator for it.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any, cast

import keras
import tensorflow as tf
from keras import ops

from keras_transformer.backend.call_arguments import takes
from keras_transformer.export.graph.replaced_layers import ReplacedLayer
from keras_transformer.export.operations.float8 import on_rounded_numbers
from keras_transformer.export.operations.lookups import looked_up, needs_no_table
from keras_transformer.export.operations.operation import ONNX, TFLITE
from keras_transformer.export.operations.recurrence import by_operator, has_operator
from keras_transformer.utils.types import Tensor

_LOOP = "inner_loop"
# The loops of recurrent layers that eager calls run, by layer.
_LOOPS: weakref.WeakKeyDictionary[keras.layers.RNN, Callable[..., object]] = weakref.WeakKeyDictionary()


def all_steps_at_once(
    layer: keras.layers.TimeDistributed, inputs: Tensor, training: bool | None = None, mask: Tensor | None = None
) -> Tensor:
    """`keras.layers.TimeDistributed` of a dynamic length: the steps are further rows of the batch.

    Keras traces it by a map whose result has a wrong shape, (1, 1, 3) for (1, 5, 3).
    """
    batch, length = ops.shape(inputs)[:2]
    options: dict[str, Any] = {"training": training} if takes(layer.layer, "training") else {}
    if mask is not None and takes(layer.layer, "mask"):
        options["mask"] = ops.reshape(mask, (-1, *ops.shape(mask)[2:]))
    outputs = layer.layer.call(ops.reshape(inputs, (-1, *ops.shape(inputs)[2:])), **options)
    return ops.reshape(outputs, (batch, length, *ops.shape(outputs)[1:]))


def _has_dynamic_length(layer: keras.layers.Layer, inputs: Tensor, *args: object, **kwargs: object) -> bool:
    return inputs.shape[1] is None


def cropped_or_resized(
    layer: keras.layers.CenterCrop, images: Tensor, transformation: object = None, training: bool = True
) -> Tensor:
    """`keras.layers.CenterCrop` of dynamic sizes: which images are too small and are resized, each call decides.

    Keras decides it while it traces, where no size is known to be too small.
    """
    kind = cast(Any, type(layer))
    images = ops.cast(images, layer.compute_dtype)
    height, width = (tf.shape(images)[axis] for axis in _image_axes(layer, images))
    found = tf.cond(
        tf.logical_and(height >= layer.height, width >= layer.width),
        lambda: kind.transform_images(layer, images),
        lambda: ops.image.resize(
            images, (layer.height, layer.width), crop_to_aspect_ratio=True, data_format=layer.data_format
        ),
    )
    shape = layer.compute_output_shape(images.shape)
    sizes = [tf.shape(images)[axis] if size is None else size for axis, size in enumerate(shape)]
    return tf.reshape(found, sizes)  # The converter of TFLite forgets the rank of what a branch returns.


def resized_by_factors(layer: keras.layers.UpSampling2D, images: Tensor) -> Tensor:
    """`keras.layers.UpSampling2D` of dynamic sizes between whose elements it interpolates.

    Keras compares the new sizes with 0, which no traced tensor takes.
    """
    is_first = layer.data_format == "channels_first"
    images = tf.transpose(images, [0, 2, 3, 1]) if is_first else images
    sizes = tf.shape(images)[1:3] * tf.constant(layer.size)
    images = tf.image.resize(images, sizes, layer.interpolation)
    return tf.transpose(images, [0, 3, 1, 2]) if is_first else images


def one_part_of_frames(layer: keras.layers.STFTSpectrogram, signals: Tensor) -> Tensor:
    """`keras.layers.STFTSpectrogram` of the real or the imaginary part of one channel: a convolution.

    Keras transposes its result twice, of which the converter of TFLite makes a reshape that it does not take.
    """
    kernel = layer.real_kernel if layer.mode == "real" else layer.imag_kernel
    steps = layer.frame_step or layer.frame_length // 2
    frames = ops.conv(signals, kernel, steps, layer.padding, data_format="channels_last")
    return ops.expand_dims(frames, -1) if layer.expand_dims else frames


def _has_one_part(layer: keras.layers.STFTSpectrogram, signals: Tensor) -> bool:
    return layer.mode in ("real", "imag") and layer.data_format == "channels_last" and signals.shape[-1] == 1


def _image_axes(layer: keras.layers.Layer, images: Tensor) -> tuple[int, int]:
    """The axes of the height and of the width."""
    return (-2, -1) if layer.data_format == "channels_first" else (-3, -2)


def _has_dynamic_size(layer: keras.layers.Layer, images: Tensor, *args: object, **kwargs: object) -> bool:
    return None in (images.shape[axis] for axis in _image_axes(layer, images))


def _interpolates_dynamic_size(layer: keras.layers.UpSampling2D, images: Tensor) -> bool:
    return layer.interpolation != "nearest" and _has_dynamic_size(layer, images)


def loop_over_slots(
    layer: keras.layers.RNN,
    sequences: Tensor,
    initial_state: Tensor,
    mask: Tensor | None = None,
    training: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """The loop of a recurrent layer that writes each output into a slot of one tensor, in place of a list.

    TFLite has lists of elements of a fixed shape only, and an output has the size of the batch.
    """
    mask = tf.nest.flatten(mask)[0]
    states = tuple(tf.nest.flatten(initial_state))
    options: dict[str, Any] = {"training": training} if takes(layer.cell, "training") else {}
    steps = _Steps(layer, tf.cast(tf.shape(sequences)[1], tf.int32), initial_state, options)
    inputs, mask = steps.in_order(sequences), None if mask is None else steps.in_order(mask)
    first, _ = steps.output(inputs[0], states)
    kept = tf.zeros(tf.concat([[steps.length], tf.shape(first)], 0), first.dtype) if layer.return_sequences else None
    carried = (tf.constant(0), tf.zeros_like(first), *([] if kept is None else [kept]), *states)

    def is_left(time: Tensor, *_: Tensor) -> Tensor:
        return time < steps.length

    def step(time: Tensor, last: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        slots, states = (rest[:1], rest[1:]) if layer.return_sequences else ((), rest)
        output, new = steps.output(tf.gather(inputs, time), states)
        if mask is not None:
            is_read = tf.gather(mask, time)
            output = _chosen(is_read, output, tf.zeros_like(last) if layer.zero_output_for_mask else last)
            new = tuple(_chosen(is_read, *pair) for pair in zip(new, states, strict=True))
        output.set_shape(last.shape)
        return (time + 1, output, *(_written(each, output, time) for each in slots), *new)

    _, last, *rest = tf.while_loop(is_left, step, carried)
    if not layer.return_sequences:
        return last, tf.expand_dims(last, 1), steps.packed(rest)
    return last, _swapped(rest[0]), steps.packed(rest[1:])


class _Steps:
    """The steps of a recurrent layer."""

    def __init__(self, layer: keras.layers.RNN, length: Tensor, initial_state: Tensor, options: dict[str, Any]) -> None:
        self._layer, self._initial, self._options, self.length = layer, initial_state, options, length

    def in_order(self, sequence: Tensor) -> Tensor:
        """A sequence with the steps first, in the order in which they are read."""
        swapped = _swapped(sequence)
        return tf.reverse(swapped, [0]) if self._layer.go_backwards else swapped

    def output(self, inputs: Tensor, states: Sequence[Tensor]) -> tuple[tf.Tensor, tuple[Tensor, ...]]:
        """The output of one step, and the states after it."""
        output, new = self._layer.cell(inputs, self.packed(states), **self._options)
        new = tf.nest.flatten(new)
        for state, before in zip(new, states, strict=True):
            state.set_shape(before.shape)
        return output, tuple(new)

    def packed(self, states: Sequence[Tensor]) -> Tensor:
        """States in the structure in which the layer has them."""
        given = self._initial if tf.nest.is_nested(self._initial) else [self._initial]
        return tf.nest.pack_sequence_as(given, list(states))


def _swapped(sequence: Tensor) -> Tensor:
    return tf.transpose(sequence, [1, 0, *range(2, sequence.shape.rank)])


def _chosen(mask: Tensor, new: Tensor, old: Tensor) -> tf.Tensor:
    """New values in the rows of a mask `(B,)`, old ones in the others."""
    return tf.where(tf.reshape(mask, [-1, *[1] * (new.shape.rank - 1)]), new, old)


def _written(slots: Tensor, output: Tensor, time: Tensor) -> Tensor:
    from tensorflow.compiler.tf2xla.python.xla import dynamic_update_slice

    starts = tf.stack([time, *[tf.constant(0)] * output.shape.rank])
    written = dynamic_update_slice(slots, tf.expand_dims(output, 0), starts)
    written.set_shape(slots.shape)
    return written


def _is_a_loop(layer: keras.layers.Layer, sequences: Tensor, *args: object, **kwargs: object) -> bool:
    """Whether a recurrent layer has a loop whose list has elements of a dynamic shape."""
    is_known = isinstance(layer.cell, keras.layers.Layer) and not tf.nest.is_nested(sequences)
    batch, _, *sizes = sequences.shape.as_list()
    return is_known and not layer.unroll and None in (batch, *sizes)


def loop_in_a_graph(
    layer: keras.layers.RNN, sequences: Tensor, initial_state: Tensor, mask: Tensor | None, training: bool = False
) -> object:
    """The steps of a recurrent layer as `predict` runs them: one by one in Python, hundreds take minutes."""
    if layer not in _LOOPS:
        loop = functools.partial(getattr(cast(type, layer.__class__), _LOOP), weakref.proxy(layer))
        _LOOPS[layer] = tf.function(loop, autograph=False, reduce_retracing=True)
    return _LOOPS[layer](sequences, initial_state, mask, training=training)


def _is_eager(layer: keras.layers.RNN, sequences: Tensor, *_: object, **__: object) -> bool:
    return tf.is_tensor(sequences) and tf.executing_eagerly() and not layer.unroll


def called_on_floats(layer: keras.layers.Layer, images: Tensor, **options: object) -> Tensor:
    """A layer that changes the size of images, of integers too, as Keras computes it in `fit` and `predict`.

    There it computes with floats. Outside of a graph it rounds its results to integers.
    """

    def as_floats(each: Tensor) -> Tensor:
        return ops.cast(each, layer.compute_dtype)

    kind = cast(Any, type(layer))
    return kind.call(layer, tf.nest.map_structure(as_floats, images), **options)


def fits_no_window(layer: keras.layers.Layer, inputs: Tensor, *_: object, **__: object) -> bool:
    """Whether a known size is less than the window of a convolution or of a pooling without padding."""
    rank = len(window := _window(layer))
    sizes = inputs.shape[-rank:] if layer.data_format == "channels_first" else inputs.shape[-1 - rank : -1]
    pairs = zip(sizes, window, strict=True)
    return layer.padding == "valid" and any(size is not None and size < length for size, length in pairs)


def _window(layer: keras.layers.Layer) -> tuple[int, ...]:
    """How many places the window of a layer spans along each axis."""
    if hasattr(layer, "pool_size"):
        return tuple(layer.pool_size)
    return tuple(1 + (size - 1) * rate for size, rate in zip(layer.kernel_size, layer.dilation_rate, strict=True))


def raise_for_window(layer: keras.layers.Layer, inputs: Tensor, *_: object, **__: object) -> None:
    """Raises for sizes that a window does not fit into: kernels of TensorFlow write beyond their memory there."""
    raise ValueError(f"the window {_window(layer)} of layer '{layer.name}' does not fit into {tuple(inputs.shape)}")


_WINDOWS = (
    *(keras.layers.Conv1D, keras.layers.Conv2D, keras.layers.Conv3D),
    *(keras.layers.DepthwiseConv1D, keras.layers.DepthwiseConv2D),
    *(keras.layers.SeparableConv1D, keras.layers.SeparableConv2D),
    *(keras.layers.ConvLSTM1D, keras.layers.ConvLSTM2D, keras.layers.ConvLSTM3D),
    *(keras.layers.AveragePooling1D, keras.layers.AveragePooling2D, keras.layers.AveragePooling3D),
    *(keras.layers.MaxPooling1D, keras.layers.MaxPooling2D, keras.layers.MaxPooling3D),
)

# In eager calls too, with which files are compared.
AS_IN_PREDICT = (
    *(ReplacedLayer(each, "call", raise_for_window, fits_no_window) for each in _WINDOWS),
    ReplacedLayer(keras.layers.Resizing, "call", called_on_floats),
    ReplacedLayer(keras.layers.CenterCrop, "call", called_on_floats),
    ReplacedLayer(keras.layers.RNN, _LOOP, loop_in_a_graph, _is_eager),
)
EVERYWHERE = (
    ReplacedLayer(keras.layers.TimeDistributed, "call", all_steps_at_once, _has_dynamic_length),
    ReplacedLayer(keras.layers.CenterCrop, "transform_images", cropped_or_resized, _has_dynamic_size),
    ReplacedLayer(keras.layers.STFTSpectrogram, "call", one_part_of_frames, _has_one_part),
    ReplacedLayer(keras.layers.UpSampling2D, "call", resized_by_factors, _interpolates_dynamic_size),
    ReplacedLayer(keras.layers.IntegerLookup, "call", looked_up, needs_no_table),
    ReplacedLayer(keras.layers.StringLookup, "call", looked_up, needs_no_table),
    ReplacedLayer(keras.layers.Dense, "_float8_call", on_rounded_numbers),
    ReplacedLayer(keras.layers.EinsumDense, "_float8_call", on_rounded_numbers),
)
BY_FORMAT = {
    TFLITE: (ReplacedLayer(keras.layers.RNN, _LOOP, loop_over_slots, _is_a_loop),),
    ONNX: (ReplacedLayer(keras.layers.RNN, _LOOP, by_operator, has_operator),),
}
