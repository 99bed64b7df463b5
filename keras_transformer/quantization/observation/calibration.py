"""Calibration: a model runs node by node on some batches, and each weight gets statistics of what it is multiplied with."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_transformer.backend import keras_private
from keras_transformer.quantization.errors import WeightQuantizationError
from keras_transformer.quantization.kernels import Kernel
from keras_transformer.quantization.observation.batches import named_batches
from keras_transformer.quantization.observation.graph_run import GraphRun, Group
from keras_transformer.quantization.observation.statistics import Statistics
from keras_transformer.quantization.observation.steps import steps_of

Batch = dict[str, np.ndarray]


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
        data: a batch, or batches, in any of the forms of `batches.named_batches`.

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
    inputs = dict(zip(keras_private.input_names(graph), graph.inputs, strict=True))
    batches = [
        {name: _checked(name, array, inputs[name]) for name, array in batch.items()}
        for batch in named_batches(data, {name: len(tensor.shape) for name, tensor in inputs.items()})
    ]
    if not any(len(next(iter(batch.values()))) for batch in batches):
        raise WeightQuantizationError("there is no calibration data: no batch has an example")
    return batches


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
    model: keras.Model,
    kernels: Iterable[Kernel],
    batches: Sequence[Batch],
    verbose: bool = False,
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
    run = GraphRun(steps, inputs, batches)
    statistics: dict[Group, Statistics] = {}
    for index, step in enumerate(steps):
        used = [by_layer[id(layer)] for layer in step.layers if id(layer) in by_layer]
        if used and verbose:
            print(f"{step.operation.name}: {index + 1} of {len(steps)}", file=sys.stderr, flush=True)
        for number in range(len(batches) if used else 0):
            for group, rows in run.inputs_of(step, used, number):
                statistics.setdefault(group, Statistics(rows.shape[1])).add(rows)
        if used:
            done = {id(kernel.layer) for kernel in used if last[id(kernel.layer)] == index}
            yield [Ready(by_layer[each], merged) for each in done if (merged := _merged(statistics, each)) is not None]
            for group in [each for each in statistics if all(last[layer] <= index for layer in each)]:
                del statistics[group]
        run.advance(index, step)


def _merged(statistics: Mapping[Group, Statistics], layer: int) -> Statistics | None:
    """What all groups with a layer counted; the object itself if there is one only."""
    found = [each for group, each in statistics.items() if layer in group]
    if len(found) < 2:
        return found[0] if found else None
    total = Statistics(len(found[0].largest))
    for each in found:
        total.merge(each)
    return total
