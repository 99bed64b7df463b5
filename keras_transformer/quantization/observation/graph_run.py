"""Runs of a model that stop after each node."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence

import keras
import numpy as np

from keras_transformer.backend import keras_private
from keras_transformer.quantization.kernels import Kernel
from keras_transformer.quantization.observation.recording import recorded
from keras_transformer.quantization.observation.steps import Key, Step
from keras_transformer.utils.types import Tensor

_TOKENS_MASK = "padding_mask"
# The ids of the layers that read one tensor.
Group = tuple[int, ...]
# Bytes of an activation of all batches that stay in memory.
_IN_MEMORY = 1 << 30


def input_masks(batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray | None]:
    """The masks of the inputs of a model: "source_padding_mask" is that of all "source_..." with its shape.

    Returns:
        dict of name of an input to a bool array `(B, T)`, True at tokens, or None.

    Example:

    >>> batch = {"token_ids": np.ones((1, 2)), "padding_mask": np.array([[True, False]]), "features": np.ones((1, 5, 3))}
    >>> {name: None if mask is None else mask.tolist() for name, mask in input_masks(batch).items()}
    {'token_ids': [[True, False]], 'padding_mask': None, 'features': None}
    """
    masks = {name[: -len(_TOKENS_MASK)]: batch[name] for name in batch if name.endswith(_TOKENS_MASK)}
    found: dict[str, np.ndarray | None] = {}
    for name, array in batch.items():
        prefixes = [] if name.endswith(_TOKENS_MASK) else [each for each in masks if name.startswith(each)]
        found[name] = mask_of(array, [masks[each] for each in sorted(prefixes, key=len, reverse=True)])
    return found


def mask_of(x: np.ndarray, masks: list[np.ndarray | None]) -> np.ndarray | None:
    """The first mask `(B, T)` that fits a tensor `(B, T, ...)`, or None."""
    for mask in masks:
        if mask is not None and tuple(x.shape[: len(mask.shape)]) == tuple(mask.shape):
            return np.asarray(mask, bool)
    return None


def valid(x: np.ndarray, width: int, masks: list[np.ndarray | None]) -> np.ndarray:
    """The vectors `(n, width)` of a tensor that are no padding.

    Example:

    >>> valid(np.arange(8.0).reshape(1, 2, 4), 4, [np.array([[False, True]])]).tolist()
    [[4.0, 5.0, 6.0, 7.0]]
    """
    mask = mask_of(x, masks)
    rows = x.reshape(-1, width)
    if mask is None:  # All positions in one axis, as a mixture of experts has them.
        flat = [each.reshape(-1) for each in masks if each is not None and each.size == len(x) and x.ndim == 2]
        return rows[flat[0].astype(bool)] if flat else rows
    each = len(rows) // mask.size
    return rows[np.repeat(mask.reshape(-1), each)]


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
        self._attached: dict[Key, list[Tensor | None]] = {key: [None] * self._number for key in inputs.values()}
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
