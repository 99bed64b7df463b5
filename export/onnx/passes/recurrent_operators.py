"""The graphs of recurrent layers of operators of ONNX: `LSTM`, `GRU` and `RNN`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from keras_transformer.export.graph.native_functions import operator_of
from keras_transformer.export.graph.repeated_layers import WEIGHT
from keras_transformer.export.onnx.graph import add_constant, make_node, name_of
from keras_transformer.export.onnx.options import PLAIN_OPSET
from keras_transformer.export.onnx.passes.repeated_parts import Ends
from keras_transformer.export.operations.recurrence import LSTM_GATES, Recurrence

if TYPE_CHECKING:
    from tensorflow.core.framework.function_pb2 import FunctionDef

_FIRST = -(2**63)


def operator_part(function: FunctionDef) -> tuple[Ends, ir.Model]:
    """The graph of an operator, and the names of its inputs and outputs.

    Args:
        function: `FunctionDef` of a recurrent layer, see `operations.recurrence`.
    """
    found = operator_of(function)
    found["activations"] = tuple(found["activations"])
    names = [each.name for each in function.signature.input_arg]
    model = _Builder(Recurrence(**found), names).model()
    return Ends(names, [name_of(each) for each in model.graph.outputs]), model


class _Builder:
    """Makes the nodes of a graph.

    Args:
        recurrence: `Recurrence`.
        names: names of the inputs: the sequences, the states and the weights.
    """

    def __init__(self, recurrence: Recurrence, names: list[str]) -> None:
        self._recurrence = recurrence
        inputs = [ir.Value(name=name, type=ir.TensorType(ir.DataType.FLOAT)) for name in names]
        self._graph = ir.Graph(inputs, [], nodes=[], opset_imports={"": PLAIN_OPSET}, name="recurrent_layer")

    def model(self) -> ir.Model:
        """The graph as a model."""
        weights = [each for each in self._graph.inputs if name_of(each).startswith(WEIGHT)]
        sequences, *states = self._graph.inputs[: -len(weights)]
        kernel, recurrent, *bias = weights
        operands = [
            self._add("Transpose", sequences, perm=[1, 0, 2]),
            self._directed(self._add("Transpose", self._ordered(kernel), perm=[1, 0])),
            self._directed(self._add("Transpose", self._ordered(recurrent), perm=[1, 0])),
            self._bias(bias[0]) if bias else None,
            None,  # The lengths of the rows: all are as long as the longest.
            *map(self._directed, states),
        ]
        made = self._operator(operands, len(states))
        outputs = [self._sequences(made[0])] if self._recurrence.returns_sequences else []
        outputs += [self._add("Squeeze", each, self._constant([0])) for each in made[1:]]
        for number, each in enumerate(outputs):
            each.name = f"result_{number}"
        self._graph.outputs.extend(outputs)
        return ir.Model(self._graph, ir_version=10)

    def _operator(self, operands: list[ir.Value | None], states: int) -> list[ir.Value]:
        recurrence = self._recurrence
        options: dict[str, Any] = {
            "activations": list(recurrence.activations),
            "direction": "reverse" if recurrence.is_backward else "forward",
            "hidden_size": recurrence.units,
        }
        if recurrence.operator == "GRU":
            options["linear_before_reset"] = int(recurrence.resets_after)
        made = [ir.Value(name=name) for name in ("steps", "state", "carry")[: states + 1]]
        name = recurrence.operator.lower()
        self._graph.append(ir.node(recurrence.operator, operands, options, outputs=made, name=name))
        return made

    def _sequences(self, steps: ir.Value) -> ir.Value:
        """The outputs of the steps `(L, 1, B, H)` as `(B, L, H)`, in the order in which they were read."""
        found = self._add("Squeeze", steps, self._constant([1]))
        if self._recurrence.is_backward:  # The operator has them in the order of the sequence.
            bounds = [self._constant([each]) for each in (-1, _FIRST, 0, -1)]
            found = self._add("Slice", found, *bounds)
        return self._add("Transpose", found, perm=[1, 0, 2])

    def _ordered(self, weight: ir.Value, axis: int = 1) -> ir.Value:
        """A weight with its gates in the order of the operator. A runtime computes that when it loads the file."""
        if self._recurrence.operator != "LSTM":  # The gates of a GRU have the same order.
            return weight
        units = np.arange(self._recurrence.units)
        places = np.concatenate([gate * len(units) + units for gate in LSTM_GATES])
        return self._add("Gather", weight, self._constant(places), axis=axis)

    def _bias(self, bias: ir.Value) -> ir.Value:
        """The bias of the inputs, followed by that of the state."""
        if self._recurrence.resets_after:
            return self._add("Reshape", bias, self._constant([1, -1]))
        count = {"LSTM": 4, "GRU": 3}.get(self._recurrence.operator, 1)
        zeros = self._constant(np.zeros(count * self._recurrence.units, "float32"))
        return self._directed(self._add("Concat", self._ordered(bias, axis=0), zeros, axis=0))

    def _directed(self, value: ir.Value) -> ir.Value:
        """A tensor with an axis of the directions in front."""
        return self._add("Unsqueeze", value, self._constant([0]))

    def _constant(self, value: object) -> ir.Value:
        return add_constant(self._graph, f"constant_{len(self._graph.initializers)}", np.asarray(value))

    def _add(self, op: str, *inputs: ir.Value, **attributes: Any) -> ir.Value:
        name = f"{op.lower()}_{len(self._graph)}"
        node = make_node(op, inputs, name, name, **attributes)
        self._graph.append(node)
        return node.outputs[0]
