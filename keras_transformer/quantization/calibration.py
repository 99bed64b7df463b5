"""Calibration: a model runs node by node on some batches, and each weight gets statistics of what it is multiplied with."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_transformer.backend import keras_private
from keras_transformer.quantization.errors import WeightQuantizationError
from keras_transformer.quantization.kernels import Kernel
from keras_transformer.quantization.padding import input_masks, mask_of, valid
from keras_transformer.quantization.statistics import Statistics
from keras_transformer.quantization.steps import steps_of
from keras_transformer.utils.types import Tensor

Batch = dict[str, np.ndarray]

# Bytes of an activation of all batches that stay in memory.
_IN_MEMORY = 1 << 30


class Ready(NamedTuple):
    """A weight that the data has passed for the last time.

    Attributes:
        kernel: `Kernel`.
        statistics: `Statistics` of its inputs.
    """

    kernel: Kernel
    statistics: Statistics


def as_batches(model: keras.Model, data: Any) -> list[Batch]:
    """Calibration data as a list of dicts of arrays, one for each input of the model.

    Args:
        model: Functional `keras.Model`.
        data: a batch, or an iterable of batches, as `fit` and `predict` take them: an array, a list of arrays or a dict; of
            a tuple `(x, y)`, x counts.

    Raises:
        WeightQuantizationError: there is none, or its names, shapes or types are not those of the model's inputs.

    Example:

    >>> model = keras.Sequential([keras.Input((64,), name="x"), keras.layers.Dense(64)])
    >>> [batch["x"].shape for batch in as_batches(model, [np.ones((2, 64)), np.ones((1, 64))])]
    [(2, 64), (1, 64)]
    """
    graph = keras_private.functional(model)
    if not keras_private.is_graph(graph):
        raise WeightQuantizationError(f"{model.name!r} is no Functional model: its graph is needed to run it on data")
    if data is None:
        raise WeightQuantizationError("there is no calibration data: pass data=, some batches of inputs")
    batches = [data] if isinstance(data, Mapping) or hasattr(data, "shape") else data
    batches = [_named(graph, keras.utils.unpack_x_y_sample_weight(batch)[0]) for batch in batches]
    if not any(len(next(iter(batch.values()))) for batch in batches):
        raise WeightQuantizationError("there is no calibration data: no batch has an example")
    return batches


def _named(graph, batch):
    """A batch by the names of the inputs."""
    inputs = dict(zip(keras_private.input_names(graph), graph.inputs, strict=True))
    if isinstance(batch, Mapping):
        arrays = dict(batch)
    else:
        flat = list(batch) if isinstance(batch, (list, tuple)) else [batch]
        if len(flat) != len(inputs):
            raise WeightQuantizationError(f"a batch has {len(flat)} arrays; the model's inputs are {sorted(inputs)}")
        arrays = dict(zip(inputs, flat, strict=True))
    if arrays.keys() != inputs.keys():
        raise WeightQuantizationError(f"a batch has {sorted(arrays)}; the model's inputs are {sorted(inputs)}")
    return {name: _checked(name, keras.ops.convert_to_numpy(arrays[name]), inputs[name]) for name in inputs}


def _checked(name, array, tensor):
    fits = len(array.shape) == len(tensor.shape) and all(
        size in (None, found) for size, found in zip(tensor.shape, array.shape, strict=True)
    )
    if not fits:
        raise WeightQuantizationError(
            f"{name!r} has the shape {array.shape} in a batch; the model takes {tensor.shape}"
        )
    takes_numbers = "float" in tensor.dtype
    if array.dtype.kind not in ("fiub" if takes_numbers else "iub"):
        raise WeightQuantizationError(f"{name!r} is {array.dtype} in a batch; the model takes {tensor.dtype}")
    return array.astype(tensor.dtype)


def calibrate(
    model: keras.Model, kernels: Iterable[Kernel], batches: Sequence[Batch], verbose: bool = False
) -> Iterator[list[Ready]]:
    """Runs a model node by node, such as block by block, and yields weights after their last node, with statistics.

    What is done to these weights before the next step counts for the nodes that follow: a node with weights runs twice,
    before and after. The activations of all batches are kept for the tensors that later nodes read, and no others; in
    temporary files if they are large.

    Args:
        model: Functional `keras.Model`.
        kernels: iterable of `Kernel`. A table of embeddings counts where it is multiplied with, not where it is looked up.
        batches: those of `as_batches`.
        verbose: bool. Whether each node writes a line to stderr.

    Yields:
        For each node with weights that no later node has, a list of `Ready`. Padding does not count: positions where the
        mask of the model is False.
    """
    by_layer = {id(kernel.layer): kernel for kernel in kernels}
    inputs, steps = steps_of(keras_private.functional(model))
    last = {id(layer): index for index, step in enumerate(steps) for layer in step.layers}
    # What follows the last of the weights, such as logits, is not computed.
    steps = steps[: 1 + max((last[layer] for layer in by_layer if layer in last), default=-1)]
    run = _Run(steps, inputs, batches)
    statistics: dict[tuple[int, ...], Statistics] = {}
    for index, step in enumerate(steps):
        used = [by_layer[id(layer)] for layer in step.layers if id(layer) in by_layer]
        if used:
            if verbose:
                print(f"{step.operation.name}: {index + 1} of {len(steps)}", file=sys.stderr, flush=True)
            run.measure(step, used, statistics)
            done = {id(kernel.layer) for kernel in used if last[id(kernel.layer)] == index}
            yield [Ready(by_layer[each], merged) for each in done if (merged := _merged(statistics, each)) is not None]
            for group in [each for each in statistics if all(last[layer] <= index for layer in each)]:
                del statistics[group]
        run.advance(index, step)


def _merged(statistics: Mapping[tuple[int, ...], Statistics], layer: int) -> Statistics | None:
    """What all groups with a layer counted; the object itself if there is one only."""
    found = [each for group, each in statistics.items() if layer in group]
    if len(found) < 2:
        return found[0] if found else None
    total = Statistics(len(found[0].largest))
    for each in found:
        total.merge(each)
    return total


class _Run:
    """The activations of all batches between two nodes, with their masks."""

    def __init__(self, steps, inputs, batches):
        self._number = len(batches)
        # The last step that reads a tensor.
        self._last = {key: index for index, step in enumerate(steps) for key in step.inputs.values()}
        self._values = {key: [batch[name] for batch in batches] for name, key in inputs.items()}
        masks = [input_masks(batch) for batch in batches]
        # The mask that Keras attached to a tensor, and the mask that says what is padding.
        self._attached: dict[Any, list[Any]] = {key: [None] * self._number for key in inputs.values()}
        self._padding = {key: [each[name] for each in masks] for name, key in inputs.items()}

    def measure(self, step, kernels, statistics):
        """Runs a step and adds what its weights are multiplied with to the statistics of groups of layers, by ids."""
        by_layer = {id(kernel.layer): kernel for kernel in kernels}
        for number in range(self._number):
            seen: list[tuple[Any, int]] = []
            with recorded([kernel.layer for kernel in kernels], lambda layer, x, _: seen.append((x, id(layer)))):  # noqa: B023
                given, _ = self._call(step, number)
            masks = [self._padding[key][number] for key in step.inputs.values()]
            for x, group in _groups(seen):
                width = by_layer[group[0]].width
                own = [mask for tensor, mask in zip(given, masks, strict=True) if tensor is x]
                attached = keras_private.get_mask(x)
                attached = None if attached is None else keras.ops.convert_to_numpy(attached)
                rows = valid(keras.ops.convert_to_numpy(x), width, [attached, *own, *masks])
                statistics.setdefault(group, Statistics(width)).add(rows)

    def advance(self, index, step):
        """Runs a step for the tensors that later steps read, and forgets those that none reads."""
        if any(self._last.get(key, -1) > index for key in step.outputs):
            for key in step.outputs:
                self._values[key], self._attached[key], self._padding[key] = [], [], []
            for number in range(self._number):
                _, outputs = self._call(step, number)
                masks = [self._padding[key][number] for key in step.inputs.values()]
                for key, output in zip(step.outputs, keras.tree.flatten(outputs), strict=True):
                    attached = keras_private.get_mask(output)
                    attached = None if attached is None else keras.ops.convert_to_numpy(attached)
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


def _groups(seen: list[tuple[Any, int]]) -> list[tuple[Any, tuple[int, ...]]]:
    """The tensors that layers read, each once, with the ids of its layers."""
    found: dict[int, tuple[Any, list[int]]] = {}
    for x, layer in seen:
        found.setdefault(id(x), (x, []))[1].append(layer)
    return [(x, tuple(dict.fromkeys(layers))) for x, layers in found.values()]


@contextlib.contextmanager
def recorded(layers: Iterable[Any], record: Callable[[Any, Tensor, Tensor], None]) -> Iterator[None]:
    """Context in which each call of the layers is followed by `record(layer, inputs, outputs)`.

    A lookup in a table of embeddings is not recorded: nothing is multiplied.
    """

    def wrap(layer, call):
        def wrapped(inputs, *args, **kwargs):
            outputs = call(inputs, *args, **kwargs)
            is_lookup = (
                isinstance(layer, keras.layers.Embedding) and not (args and args[0]) and not kwargs.get("reverse")
            )
            if not is_lookup:
                record(layer, inputs, outputs)
            return outputs

        return wrapped

    with keras_private.wrapped_calls(layers, wrap):
        yield
