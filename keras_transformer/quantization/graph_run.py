"""Runs of a model that stop after each node."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_transformer.backend import keras_private
from keras_transformer.quantization.kernels import Kernel
from keras_transformer.quantization.padding import input_masks, mask_of, valid
from keras_transformer.quantization.recording import recorded
from keras_transformer.quantization.steps import Key, Step
from keras_transformer.utils.types import Tensor

# The ids of the layers that read one tensor.
Group = tuple[int, ...]
# Bytes of an activation of all batches that stay in memory.
_IN_MEMORY = 1 << 30


class GraphRun:
    """A run of a Functional model on some batches, one node after the other, with the masks of padding.

    Args:
        steps: list of `Step`.
        inputs: dict of the name of an input to its key.
        batches: list of dicts of arrays.
    """

    def __init__(
        self, steps: Sequence[Step], inputs: Mapping[str, Key], batches: Sequence[Mapping[str, np.ndarray]]
    ) -> None:
        self._number = len(batches)
        # The last step that reads a tensor.
        self._last = {key: index for index, step in enumerate(steps) for key in step.inputs.values()}
        self._values = {key: [batch[name] for batch in batches] for name, key in inputs.items()}
        masks = [input_masks(batch) for batch in batches]
        # The mask that Keras attached to a tensor, and the mask that says what is padding.
        self._attached: dict[Any, list[Any]] = {key: [None] * self._number for key in inputs.values()}
        self._padding = {key: [each[name] for each in masks] for name, key in inputs.items()}

    def inputs_of(self, step: Step, kernels: Iterable[Kernel], number: int) -> list[tuple[Group, np.ndarray]]:
        """What the weights of a step are multiplied with in one batch.

        Returns:
            For each tensor that layers with the weights read, their ids, and its vectors `(n, K)` without padding.
        """
        by_layer = {id(kernel.layer): kernel for kernel in kernels}
        seen: dict[int, tuple[Tensor, list[int]]] = {}

        def record(layer, x, _):
            seen.setdefault(id(x), (x, []))[1].append(id(layer))

        with recorded([kernel.layer for kernel in by_layer.values()], record):
            given, _ = self._call(step, number)
        masks = [self._padding[key][number] for key in step.inputs.values()]
        found = []
        for x, layers in seen.values():
            own = [mask for tensor, mask in zip(given, masks, strict=True) if tensor is x]
            rows = valid(keras.ops.convert_to_numpy(x), by_layer[layers[0]].width, [_attached(x), *own, *masks])
            found.append((tuple(dict.fromkeys(layers)), rows))
        return found

    def advance(self, index: int, step: Step) -> None:
        """Runs a step for the tensors that later steps read, and forgets those that none reads."""
        if any(self._last.get(key, -1) > index for key in step.outputs):
            for key in step.outputs:
                self._values[key], self._attached[key], self._padding[key] = [], [], []
            for number in range(self._number):
                _, outputs = self._call(step, number)
                masks = [self._padding[key][number] for key in step.inputs.values()]
                for key, output in zip(step.outputs, keras.tree.flatten(outputs), strict=True):
                    attached = _attached(output)
                    value = keras.ops.convert_to_numpy(output)
                    self._values[key].append(_stored(value, self._number))
                    self._attached[key].append(attached)
                    self._padding[key].append(mask_of(value, [attached, *masks]))
        for key in [each for each in self._values if self._last.get(each, -1) <= index]:
            del self._values[key], self._attached[key], self._padding[key]

    def _call(self, step, number):
        """The tensors that a step gets of a batch, and what it gives."""
        tensors = {}
        for name, key in step.inputs.items():
            tensors[name] = keras.ops.convert_to_tensor(self._values[key][number])
            attached = self._attached[key][number]
            keras_private.set_mask(tensors[name], None if attached is None else keras.ops.convert_to_tensor(attached))
        arguments, options = keras_private.fill_in(step.node, tensors)
        return list(tensors.values()), step.operation(*arguments, **options)


def _stored(value, number):
    """An array of one batch of a number; in a file that ends with it if all together are large."""
    if value.nbytes * number <= _IN_MEMORY:
        return value
    with tempfile.TemporaryFile() as file:
        stored = np.memmap(file, value.dtype, "w+", shape=value.shape)
    stored[...] = value
    return stored


def _attached(x):
    """The mask that Keras attached to a tensor, as an array, or None."""
    mask = keras_private.get_mask(x)
    return None if mask is None else keras.ops.convert_to_numpy(mask)
