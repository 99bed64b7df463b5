"""A graph whose operations round at random: there is noise on each result, or on each operand.

Noise is part of the graph, and not added between operations that are run one by one: a model of thirty layers has ten
thousand of them. Layers that repeat share one function, so that little is to be made.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context

from keras_transformer.export.graph.function import GraphFunction
from keras_transformer.export.graph.operation_results import operand_types, result_part
from keras_transformer.export.graph.traced_graph import LOWERED, with_own_functions
from keras_transformer.export.operations.table import OPERATIONS
from keras_transformer.export.verification.noise import COMPLEX, FLOAT, INT32, Kind, Nodes, Noise, new_node

if TYPE_CHECKING:
    from tensorflow.core.framework.graph_pb2 import GraphDef

_SEED = 2026
_ULP = 2.0**-23
# Functions in which something is random are not without a state.
_STATEFUL = {
    "PartitionedCall": "StatefulPartitionedCall",
    "StatelessCase": "Case",
    "StatelessIf": "If",
    "StatelessWhile": "While",
}
_numbers = itertools.count()


class NoisyGraph:
    """A copy of a graph with noise behind some of its operations, and before others, which can be run.

    Args:
        graph_def: `GraphDef`; not changed.
        inputs: names of the placeholders in it, in the order in which their tensors are given.
        outputs: tensors, `"node:index"`, of identities.
        rounds: whether noise belongs behind an operation, on its first result: a function of its `NodeDef`.
        rounds_operands: whether noise belongs before an operation, on each of its operands.
    """

    def __init__(
        self,
        graph_def: GraphDef,
        inputs: Iterable[str],
        outputs: Iterable[str],
        rounds: Callable[[Any], bool],
        rounds_operands: Callable[[Any], bool],
    ) -> None:
        self._rounds, self._rounds_operands = rounds, rounds_operands
        self._suffix = f"noisy_{next(_numbers)}"
        message = with_own_functions(graph_def, self._suffix)
        self._units: dict[str, _Units] = {}
        self._add("", message.node)
        for each in message.library.function:
            names = self._add(each.signature.name, each.node_def)
            for key, source in each.ret.items():
                each.ret[key] = names.get(source, source)
            each.signature.is_stateful = True
            each.attr["_noinline"].b = True  # One copy of the layers that repeat is enough.
        main = message.library.function.add()
        main.signature.is_stateful = True
        GraphFunction(message, inputs).fill(main, self._suffix, outputs)
        self._types = [each.type for each in main.signature.output_arg]
        self._functions = [each.signature.name for each in message.library.function]
        for each in message.library.function:
            context.context().add_function_def(each)

    def __call__(self, tensors: Sequence[Any], lengths: Mapping[tuple[str, str], float]) -> Sequence[Any]:
        """The outputs with noise, other noise in each call.

        Args:
            tensors: one for each input.
            lengths: dict of (function, operation) to the half width of the noise; 0 for those that are missing.
        """
        for function, units in self._units.items():
            name = function.removesuffix(f"_{self._suffix}")
            units.assign([lengths.get((name, each), 0.0) for each in units.operations])
        return tf.raw_ops.StatefulPartitionedCall(
            args=tensors, Tout=self._types, f=_Named(self._suffix), config_proto=_as_it_is()
        )

    def _add(self, function: str, nodes: Any) -> dict[str, str]:
        """Adds noise to the operations of a function, or of the graph; returns what is read in place of a result."""
        found: list[Noise] = []
        names: dict[str, str] = {}
        for node in filter(self._rounds, nodes):
            part = f"{node.name}:{result_part(node.op, node.attr, 0)}"
            operation, source = OPERATIONS[node.op], part if function else node.name
            kind = Kind.OF_ONE if operation.is_absolute else Kind.OF_VALUES
            width = _ULP if _reads_coordinates(node) and not operation.rounds else None
            found.append(Noise(node.name, f"{node.name}/moved", source, FLOAT, True, kind, width))
            for source in (node.name, f"{node.name}:0", part):
                names[source] = found[-1].result(bool(function))
        for node in nodes:
            node.op = _STATEFUL.get(node.op, node.op)
            node.attr.pop(LOWERED, None)  # Jumps need TensorFlow's optimizer.
            if "config_proto" in node.attr:
                node.attr["config_proto"].s = _as_it_is()
            node.input[:] = [names.get(source, source) for source in node.input]
        for node in nodes:
            for number, each in self._on_operands(node):
                found.append(each)
                node.input[number] = each.result(bool(function))
        if found:
            units = self._units[function] = _Units([each.operation for each in found])
            nodes.extend(units.nodes(bool(function)))
            for number, each in enumerate(found):
                nodes.extend(each.nodes(*units.names(number, bool(function)), bool(function)))
        return names

    def _on_operands(self, node: Any) -> list[tuple[int, Noise]]:
        """The noise on operands of an operation, by their positions."""
        reads_coordinates = _reads_coordinates(node)
        is_moved = self._rounds_operands(node) or reads_coordinates
        types = dict(enumerate(operand_types(node.op, node.attr))) if is_moved else {}
        keeps_whole, width = self._rounds(node), _ULP if reads_coordinates else None
        is_matrix = node.op in OPERATIONS and OPERATIONS[node.op].rounds_matrices
        found: dict[int, Noise] = {}
        for number, dtype in types.items():
            if dtype in (FLOAT, COMPLEX):
                kind = Kind.OF_MATRICES if is_matrix and dtype == FLOAT else Kind.OF_VALUES
                name = f"{node.name}/moved_{number}"
                found[number] = Noise(node.name, name, node.input[number], dtype, keeps_whole, kind, width)
        if reads_coordinates:
            found[0] = Noise(node.name, f"{node.name}/moved_0", node.input[0], FLOAT, False, Kind.OF_NEIGHBORS)
        return list(found.items())

    def close(self) -> None:
        """Gives back what TensorFlow holds of it."""
        for each in self._functions:
            context.context().remove_function(each)
        for units in self._units.values():
            units.close()


def _reads_coordinates(operation: Any) -> bool:
    """Whether an operation, a `NodeDef`, reads numbers of float32 at coordinates that it rounds."""
    found = OPERATIONS.get(operation.op)
    if found is None or not found.rounds_coordinates:
        return False
    return operand_types(operation.op, operation.attr)[0] == FLOAT


@dataclasses.dataclass(frozen=True)
class _Named:
    """A function as an attribute of an operation."""

    name: str


def _as_it_is() -> bytes:
    """The config with which TensorFlow runs a graph without optimizing it, which takes longer than to run it a few times."""
    config = tf.compat.v1.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = tf.compat.v1.OptimizerOptions.L0
    return config.SerializeToString()


class _Units:
    """What the operations of one function read: the half width of the noise of each, and a seed, another one in each call.

    Both are resources, which every function can reach. Random operations with a state of their own would begin again in each
    layer that repeats, and all blocks would round alike.
    """

    def __init__(self, operations: Sequence[str]) -> None:
        self.operations = operations
        self._label = f"rounding_units_{next(_numbers)}"
        self._widths = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[len(operations)], shared_name=self._label)
        self._calls = tf.raw_ops.VarHandleOp(dtype=tf.int32, shape=[], shared_name=f"{self._label}_calls")
        tf.raw_ops.AssignVariableOp(resource=self._calls, value=tf.constant(0))

    def assign(self, values: Sequence[float]) -> None:
        tf.raw_ops.AssignVariableOp(resource=self._widths, value=tf.constant(values, tf.float32))

    def close(self) -> None:
        for each in (self._widths, self._calls):
            tf.raw_ops.DestroyResourceOp(resource=each, ignore_lookup_error=True)

    def nodes(self, is_in_function: bool) -> list[Any]:
        """Operations that read the resources, and give a width and a seed for each operation."""
        nodes, count = Nodes(self._label, is_in_function), len(self.operations)
        widths = nodes.add("widths", "ReadVariableOp", [self._handle(nodes, self._label, FLOAT, [count])], dtype=FLOAT)
        self._unpack(nodes, f"{self._label}/width", widths, FLOAT)
        calls = self._handle(nodes, f"{self._label}_calls", INT32, [])
        nodes.add("next", "AssignAddVariableOp", [calls, nodes.constant("one", np.int32(1))], dtype=INT32)
        number = nodes.add("number", "ReadVariableOp", [calls, f"^{self._label}/next"], dtype=INT32)
        rows = nodes.constant("rows", np.stack([np.arange(count), np.full(count, _SEED)], 1).astype("int32"))
        self._unpack(nodes, f"{self._label}/seed", nodes.add("seeds", "AddV2", [rows, number], T=INT32), INT32)
        return nodes.found

    def _handle(self, nodes: Nodes, label: str, dtype: int, shape: Sequence[int]) -> str:
        handle = nodes.add(f"handle_{label}", "VarHandleOp", [], dtype=dtype)
        nodes.found[-1].attr["shape"].shape.CopyFrom(tf.TensorShape(shape).as_proto())
        nodes.found[-1].attr["shared_name"].s = label.encode()
        return handle

    def _unpack(self, nodes: Nodes, name: str, source: str, dtype: int) -> None:
        nodes.found.append(new_node(name, "Unpack", [source], T=dtype))
        nodes.found[-1].attr["num"].i = len(self.operations)
        nodes.found[-1].attr["axis"].i = 0

    def names(self, number: int, is_in_function: bool) -> tuple[str, str]:
        """The tensors of the width and of the seed of one operation."""
        part = ":output" if is_in_function else ""
        width, seed = (f"{self._label}/{each}{part}:{number}" for each in ("width", "seed"))
        return width, seed
