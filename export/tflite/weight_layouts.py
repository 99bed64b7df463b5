"""How the operators of a traced graph read its weights, which determines their layout in a TFLite file.

The converter reshapes and transposes a weight as the graph does. In addition, `FULLY_CONNECTED` reads a kernel with its
outputs as rows, and `CONV_2D` a filter with its outputs as the first axis.
"""

import collections
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from keras_transformer.utils.types import Shape

# A chain of ("reshape", shape) and ("transpose", permutation).
Steps = tuple[tuple[str, Shape], ...]
PRODUCT, ROWS, FILTER = "product", "rows", "filter"
_LOOPS = ("While", "StatelessWhile")


def apply_steps(array: np.ndarray, steps: Steps) -> np.ndarray:
    """Returns an array reshaped and transposed, without a copy where numpy needs none."""
    for kind, sizes in steps:
        array = array.reshape(sizes) if kind == "reshape" else array.transpose(sizes)
    return array


class WeightLayouts:
    """The layouts of the weights of one graph.

    Args:
        graph_def: `GraphDef`.
        weights: names of the placeholders of the weights.
        outputs: names of the nodes that compute the results.

    Attributes:
        read: the names of all weights that the results depend on.
        layouts: dict of name to a dict of `PRODUCT`, `ROWS` or `FILTER` to `Steps`. Weights with another consumer, or with
            two layouts for one kind of consumer, are missing.
    """

    def __init__(self, graph_def: Any, weights: Iterable[str], outputs: Iterable[str]) -> None:
        nodes = {node.name: node for node in graph_def.node}
        live = _reachable(nodes, outputs)
        functions = {function.signature.name: function for function in graph_def.library.function}
        readers = _Readers([node for node in graph_def.node if node.name in live], functions)
        self.read = live.intersection(weights)
        self.layouts: dict[str, dict[str, Steps]] = {}
        for name in self.read:
            found = readers.ends(name, len(nodes[name].attr["shape"].shape.dim), ())
            if found and len(dict(found)) == len(found):
                self.layouts[name] = dict(found)


def _reachable(nodes: dict[str, Any], outputs: Iterable[str]) -> set[str]:
    """The names of the nodes that outputs depend on."""
    found: set[str] = set()
    pending = [*outputs]
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending.extend(map(_node_name, nodes[name].input))
    return found


class _Readers:
    """The consumers of tensors in a graph or in a function."""

    def __init__(self, nodes: Sequence[Any], functions: dict[str, Any]) -> None:
        self._nodes = {node.name: node for node in nodes}
        self._functions = functions
        self._bodies: dict[str, _Readers] = {}
        self._readers: dict[str, list[tuple[Any, int]]] = collections.defaultdict(list)
        for node in nodes:
            for position, source in enumerate(node.input):
                self._readers[_node_name(source)].append((node, position))

    def ends(self, name: str, rank: int, steps: Steps) -> set[tuple[str, Steps]] | None:
        """The kind of each consumer of a tensor with the steps before it; None if there is another consumer.

        Args:
            name: of the node of the tensor, or of an argument.
            rank: of the weight that the tensor was made from.
            steps: by which it was made.
        """
        found: set[tuple[str, Steps]] = set()
        for node, position in self._readers[name]:
            ends = self._end(node, position, rank, steps)
            if ends is None:
                return None
            found |= ends
        return found

    def _end(self, node: Any, position: int, rank: int, steps: Steps) -> set[tuple[str, Steps]] | None:
        if node.op == "Identity":
            return self.ends(node.name, rank, steps)
        if node.op in _LOOPS:
            return self._ends_in_loop(node, position, rank, steps)
        if node.op in ("Reshape", "Transpose") and position == 0:
            sizes = self._constant(node.input[1])
            step = None if sizes is None else (node.op.lower(), tuple(sizes.tolist()))
            return None if step is None else self.ends(node.name, rank, (*steps, step))
        if node.op in ("MatMul", "BatchMatMulV2") and position == 1 and (len(steps[-1][1]) if steps else rank) == 2:
            flag = "transpose_b" if node.op == "MatMul" else "adj_y"
            return {(PRODUCT, steps if node.attr[flag].b else _transposed(steps))}
        if node.op == "GatherV2" and position == 0:
            axis = self._constant(node.input[2])
            is_plain = axis is not None and not axis.any() and not node.attr["batch_dims"].i
            # The converter looks up constant indices itself.
            return {(ROWS, steps)} if is_plain and self._depends_on_inputs(node.input[1]) else None
        if node.op == "Conv2D" and position == 1:
            return {(FILTER, (*steps, ("transpose", (3, 0, 1, 2))))}
        return None

    def _ends_in_loop(self, node: Any, position: int, rank: int, steps: Steps) -> set[tuple[str, Steps]] | None:
        """`ends` of a weight that a loop hands on unchanged."""
        found: set[tuple[str, Steps]] = set()
        for kind in ("cond", "body"):
            function = self._functions[node.attr[kind].func.name]
            argument = function.signature.input_arg[position].name
            result = function.ret[function.signature.output_arg[position].name] if kind == "body" else argument
            body = self._bodies.setdefault(function.signature.name, _Readers(function.node_def, self._functions))
            ends = body.ends(argument, rank, steps) if body.source(result) == argument else None
            if ends is None:
                return None
            found |= ends
        return found

    def source(self, name: str) -> str:
        """The tensor that a tensor is equal to."""
        node = self._nodes.get(_node_name(name))
        return self.source(node.input[0]) if node is not None and node.op == "Identity" else _node_name(name)

    def _depends_on_inputs(self, source: str) -> bool:
        """Whether a tensor depends on the values of inputs, not only on their shapes."""
        pending, seen = [_node_name(source)], set()
        while pending:
            name = pending.pop()
            node = self._nodes.get(name)
            if node is None or node.op == "Placeholder":
                return True
            if name not in seen and node.op != "Shape":
                seen.add(name)
                pending.extend(map(_node_name, node.input))
        return False

    def _constant(self, source: str) -> np.ndarray | None:
        from tensorflow import make_ndarray

        node = self._nodes.get(_node_name(source))
        return make_ndarray(node.attr["value"].tensor) if node is not None and node.op == "Const" else None


def _transposed(steps: Steps) -> Steps:
    """The steps and a transposition of the resulting matrix, which cancels one at the end."""
    turn = ("transpose", (1, 0))
    return steps[:-1] if steps and steps[-1] == turn else (*steps, turn)


def _node_name(source: str) -> str:
    return source.lstrip("^").split(":")[0]
