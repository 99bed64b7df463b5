"""Recurrent layers of Keras that ONNX has as operators: LSTM, GRU and RNN."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, TypeAlias

import keras
import tensorflow as tf
from keras import ops

from keras_transformer.export.graph import native_functions
from keras_transformer.export.graph.repeated_layers import WEIGHT
from keras_transformer.utils.types import Tensor

_Cell: TypeAlias = keras.layers.LSTMCell | keras.layers.GRUCell | keras.layers.SimpleRNNCell

_OPERATORS = {keras.layers.LSTMCell: "LSTM", keras.layers.GRUCell: "GRU", keras.layers.SimpleRNNCell: "RNN"}
_LAYERS = (keras.layers.RNN, keras.layers.LSTM, keras.layers.GRU, keras.layers.SimpleRNN)
# In which order ONNX takes the gates of an LSTM: input, output, forget gate, candidate, by their places in kernels of Keras.
LSTM_GATES = (0, 3, 1, 2)
# Activations by what ONNX calls them. Those with numbers of their own, such as `hard_sigmoid`, are left out.
_ACTIVATIONS = {keras.activations.tanh: "Tanh", keras.activations.sigmoid: "Sigmoid", keras.activations.relu: "Relu"}


@dataclasses.dataclass(frozen=True)
class Recurrence:
    """A recurrent layer as an operator.

    Args:
        operator: its name in ONNX.
        units: size of its state.
        activations: names of the activations in ONNX, in the order in which the operator takes them.
        is_backward: bool. Whether the steps are read from the last one on.
        returns_sequences: bool. Whether the first result is the outputs of all steps.
        resets_after: bool. Whether the reset gate of a GRU is applied to the product with the state.
    """

    operator: str
    units: int
    activations: tuple[str, ...]
    is_backward: bool
    returns_sequences: bool
    resets_after: bool = False

    @classmethod
    def of(cls, layer: keras.layers.RNN) -> Recurrence | None:
        """The operator of a layer; None where ONNX has none that computes the same."""
        cell = layer.cell
        if type(layer) not in _LAYERS or type(cell) not in _OPERATORS or cell.compute_dtype != "float32":
            return None
        functions = _functions(cell)
        if not _ACTIVATIONS.keys() >= set(functions):
            return None
        activations = tuple(_ACTIVATIONS[each] for each in functions)
        options = bool(layer.go_backwards), bool(layer.return_sequences), bool(getattr(cell, "reset_after", False))
        return cls(_OPERATORS[type(cell)], cell.units, activations, *options)


def _functions(cell: _Cell) -> list[Any]:
    """The activations of a cell: of the gates first, that of a new value, and for an LSTM that of its state."""
    if isinstance(cell, keras.layers.SimpleRNNCell):
        return [cell.activation]
    return [cell.recurrent_activation, *[cell.activation] * (2 if isinstance(cell, keras.layers.LSTMCell) else 1)]


def by_operator(
    layer: keras.layers.RNN,
    sequences: Tensor,
    initial_state: Tensor,
    mask: Tensor | None = None,
    training: bool = False,
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """The loop of a recurrent layer as one function, in whose place ONNX has an operator."""
    recurrence, cell = Recurrence.of(layer), layer.cell
    assert recurrence is not None
    states = tf.nest.flatten(initial_state)
    weights = [cell.kernel, cell.recurrent_kernel, *([cell.bias] if cell.use_bias else [])]
    arguments = {"sequences": sequences, **{f"state_{number}": each for number, each in enumerate(states)}}
    for number, each in enumerate(weights):
        arguments[f"{WEIGHT}{number}"] = ops.convert_to_tensor(each)

    def loop(sequences: Tensor, *tensors: Tensor) -> list[Tensor]:
        before, values = tensors[: len(states)], tensors[len(states) :]
        with keras.StatelessScope(state_mapping=list(zip(weights, values, strict=True))):
            _, outputs, after = keras.layers.RNN.inner_loop(layer, sequences, list(before), None)
        return [outputs, *after] if layer.return_sequences else list(after)

    results = native_functions.call(dataclasses.asdict(recurrence), loop, arguments)
    outputs, after = (results[0], results[1:]) if layer.return_sequences else (results[0][:, None], results)
    return after[0], outputs, after


def has_operator(
    layer: keras.layers.RNN,
    sequences: Tensor,
    initial_state: Tensor,
    mask: Tensor | None = None,
    training: bool = False,
) -> bool:
    """Whether an operator computes what a layer does: it reads no mask, and drops nothing."""
    masks = [each for each in tf.nest.flatten(mask) if each is not None]
    return not masks and not training and not tf.nest.is_nested(sequences) and Recurrence.of(layer) is not None


def has_operators(layers: Iterable[keras.layers.Layer]) -> bool:
    """Whether there is an operator for some of the layers."""
    return any(isinstance(each, keras.layers.RNN) and Recurrence.of(each) is not None for each in layers)
