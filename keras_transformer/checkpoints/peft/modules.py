"""The linear modules of a checkpoint, and the layers of a model that they are."""

from __future__ import annotations

import math
from typing import NamedTuple

import keras
import numpy as np

from keras_transformer.backend import keras_private
from keras_transformer.checkpoints.checkpoint import Checkpoint
from keras_transformer.checkpoints.layouts import Fused, HeadByHead, Layout, Matrix
from keras_transformer.checkpoints.transfers import make_transfers

_WEIGHT = ".weight"


class Module(NamedTuple):
    """A linear module of PyTorch: its name, the layers whose kernels it joins, and the layout of their outputs.

    An adapter of a module is A `(rank, inputs)` and B `(outputs, rank)`; that of a layer A `(inputs..., rank)` and B `(rank,
    outputs...)`. A layout permutes and joins outputs, so that B is laid out as a kernel with `rank` inputs.

    Attributes:
        name: str, such as "model.layers.0.self_attn.q_proj".
        layers: tuple of layers with `enable_lora`.
        layout: `Layout` of kernels with one axis of inputs.
        transposed: bool. Whether the module's matrix is `(outputs, inputs)`, as that of `Linear`.
        inputs: int. Number of leading axes of each kernel that are inputs.
    """

    name: str
    layers: tuple[keras.layers.Layer, ...]
    layout: Layout
    transposed: bool
    inputs: int

    @property
    def sizes(self) -> tuple[int, int]:
        """The numbers of inputs and of outputs of the module."""
        shapes = [tuple(keras_private.kernel(layer).shape) for layer in self.layers]
        return math.prod(shapes[0][: self.inputs]), sum(math.prod(shape[self.inputs :]) for shape in shapes)

    def read(self, a: np.ndarray, b: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """Returns `(A, B)` of each layer from those of the module. All layers get the same A."""
        rank = a.shape[0]
        kernels = [tuple(keras_private.kernel(layer).shape) for layer in self.layers]
        ours = a.T.reshape(*kernels[0][: self.inputs], rank)
        shapes: list[tuple[int, ...]] = [(rank, *kernel[self.inputs :]) for kernel in kernels]
        parts = self.layout.read([b if self.transposed else b.T], shapes)
        return [(ours, part) for part in parts]

    def write(self, adapters: list[tuple[np.ndarray, np.ndarray] | None]) -> tuple[np.ndarray, np.ndarray]:
        """Returns `(A, B)` of the module from those of its layers, None for layers without an adapter.

        Layers with the same A, as `read` returns them, keep their rank; others have the ranks of the module for themselves.
        """
        given = [each for each in adapters if each is not None]
        flat = [a.reshape(-1, a.shape[-1]) for a, _ in given]
        is_shared = all(np.array_equal(a, flat[0]) for a in flat)
        a = flat[0] if is_shared else np.concatenate(flat, axis=1)
        rank, start, blocks = a.shape[1], 0, []
        for layer, each in zip(self.layers, adapters, strict=True):
            outputs = tuple(keras_private.kernel(layer).shape)[self.inputs :]
            block = np.zeros((rank, *outputs), "float32")
            if each is not None:
                own = each[1].shape[0]
                begin = 0 if is_shared else start
                block[begin : begin + own] = each[1]
                start += own
            blocks.append(block)
        b = self.layout.write(blocks)[0]
        return np.ascontiguousarray(a.T), np.ascontiguousarray(b if self.transposed else b.T)


def modules_of(checkpoint: Checkpoint, model: keras.Model) -> dict[str, Module]:
    """Returns the linear modules of a checkpoint that can have an adapter, by their names.

    Args:
        checkpoint: `Checkpoint`.
        model: `keras.Model` with its weights.

    Raises:
        CheckpointError: the model lacks a weight of the checkpoint.
    """
    layers = {
        id(keras_private.kernel(layer)): layer
        for layer in keras_private.flatten_layers(model, include_self=False)
        if isinstance(layer, (keras.layers.Dense, keras.layers.EinsumDense)) and layer.built
    }
    found = {}
    for transfer in make_transfers(checkpoint.entries, model):
        chosen = tuple(layers.get(id(variable)) for variable in transfer.variables)
        form = _one_axis(transfer.layout)
        if form is None or None in chosen or len(transfer.theirs) != 1 or not transfer.theirs[0].endswith(_WEIGHT):
            continue
        name = checkpoint.names.get(transfer.theirs[0], transfer.theirs[0]).removesuffix(_WEIGHT)
        found[name] = Module(name, chosen, *form)
    return found


def _one_axis(layout: Layout) -> tuple[Layout, bool, int] | None:
    """Returns the layout of kernels with one axis of inputs, whether it is transposed, and how many axes these have."""
    if isinstance(layout, Matrix):
        return Matrix(1, layout.transposed), layout.transposed, layout.inputs
    if isinstance(layout, HeadByHead):
        return layout, True, 1
    if isinstance(layout, Fused) and layout.axis == (0 if getattr(layout.layout, "transposed", True) else 1):
        part = _one_axis(layout.layout)
        return part and (Fused(part[0], layout.axis), part[1], part[2])
    return None
