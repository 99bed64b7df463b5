"""The graph of a TensorFlow function and its gradient, and functions made of parts of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tensorflow as tf

# Operations whose result shares the memory of the input: what is kept for the gradient is the input.
_VIEWS = frozenset(("Const", "ExpandDims", "Identity", "PreventGradient", "Reshape", "Squeeze", "StopGradient"))
# Operations that take about as long as reading their inputs.
# fmt: off
_ELEMENTWISE = frozenset((
    "Abs", "Add", "AddV2", "BiasAdd", "Cast", "Erf", "Exp", "Greater", "GreaterEqual", "Less", "LessEqual",
    "LogicalAnd", "LogicalNot", "LogicalOr", "Maximum", "Minimum", "Mul", "Neg", "Pow", "RealDiv", "Reciprocal",
    "Relu", "Relu6", "Rsqrt", "Select", "SelectV2", "Sigmoid", "Softplus", "Sqrt", "Square", "SquaredDifference",
    "Sub", "Tanh",
))
# fmt: on
_CHEAP = _VIEWS | _ELEMENTWISE
# Of one tensor, from others: more than activations and gates need.
_MOST_OPERATIONS = 16
# A tensor of at most this part of another is kept so that the other need not be.
_SMALL = 1 / 8


class JointGraph:
    """The graph of a function and its gradient.

    Args:
        function: function of tensors to a list of tensors.
        specs: `tf.TensorSpec` of each argument.
        trained: indices of the arguments that get gradients.

    Attributes:
        arguments, results: names of tensors.
        upstream: names of the gradients of the results of floats.
        gradients: names of the gradients of the trained arguments; None for one that is 0.
        is_float: whether each result is of floats.
        has_captures: whether the function reads other tensors than its arguments.
    """

    arguments: list[str]
    results: list[str]
    upstream: list[str]
    gradients: list[str | None]
    is_float: list[bool]

    def __init__(
        self, function: Callable[..., Sequence[tf.Tensor]], specs: Sequence[tf.TensorSpec], trained: Sequence[int]
    ) -> None:
        import tensorflow as tf

        def joint(*arguments: tf.Tensor) -> None:
            watched = [arguments[index] for index in trained]
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(watched)
                results = function(*arguments)
            floats = [x for x in results if x.dtype.is_floating]
            upstream = [tf.compat.v1.placeholder(x.dtype, x.shape) for x in floats]
            gradients = tape.gradient(floats, watched, upstream)
            # That of a lookup is sparse.
            gradients = [None if each is None else tf.convert_to_tensor(each) for each in gradients]
            self.is_float = [x.dtype.is_floating for x in results]
            self.arguments, self.results, self.upstream = (
                [x.name for x in each] for each in (arguments, results, upstream)
            )
            self.gradients = [None if each is None else each.name for each in gradients]

        concrete = tf.function(joint, autograph=False).get_concrete_function(*specs)
        self.has_captures = bool(concrete.captured_inputs)
        self._graph = concrete.graph
        self._graph_def = self._graph.as_graph_def()
        self._nodes = {node.name: node for node in self._graph_def.node}
        self._bypass_identities()
        given = {_node(each) for each in self.arguments}
        self._forward = self._ancestors(self.results) - given

    def kept(self) -> list[str]:
        """Returns the names of the tensors of the function, and of its arguments, of which the gradients are computed.

        What shares the memory of another tensor, and what is computed of kept ones element by element, is not kept: the
        function of the gradients computes it again.
        """
        again = {node for node in self._forward if self._nodes[node].op in _VIEWS}
        for tensor in sorted(self._read(again), key=self._size, reverse=True):
            again |= self._cheap_path(tensor, set(self._read(again)) - {tensor})
        return self._read(again)

    def function(
        self, name: str, inputs: Sequence[str], outputs: Sequence[str], inlined: bool = False
    ) -> Callable[..., list[tf.Tensor]]:
        """Returns a function of the tensors named `inputs` to those named `outputs`, with what is between.

        Args:
            name: str. Its name in the graph.
            inputs, outputs: names of tensors.
            inlined: bool. Whether a call adds its operations to the graph, and not a call of one function. Default False.
        """
        import tensorflow as tf

        part = tf.compat.v1.GraphDef(versions=self._graph_def.versions, library=self._graph_def.library)
        chosen = self._ancestors(outputs, given=inputs)
        part.node.extend(_without_missing(node, chosen) for node in self._graph_def.node if node.name in chosen)
        read = {each for node in part.node for each in _inputs(node)}

        def imported(*tensors: object) -> list[tf.Tensor]:
            found = dict(zip(inputs, tensors, strict=True))
            wanted = [each for each in outputs if each not in found]
            used = {key: value for key, value in found.items() if key in read}
            made = tf.graph_util.import_graph_def(part, input_map=used, return_elements=wanted, name="block")
            for tensor, name in zip(made or [], wanted, strict=True):
                tensor.set_shape(self._graph.get_tensor_by_name(name).shape)  # May be more than the operations imply.
                found[name] = tensor
            return [found[each] for each in outputs]

        if inlined:
            return imported
        imported.__name__ = name
        # Inlined, the function would be in the graph as often as it is called.
        function = tf.function(imported, autograph=False, experimental_attributes={"_noinline": True})
        tensors = [self._graph.get_tensor_by_name(each) for each in inputs]
        return function.get_concrete_function(*(tf.TensorSpec(x.shape, x.dtype) for x in tensors))

    def _bypass_identities(self) -> None:
        """Removes `IdentityN`, which joins arguments and results of a custom gradient: each result would need all."""

        def source(tensor: str) -> str:
            while self._nodes[_node(tensor)].op == "IdentityN":
                tensor = _inputs(self._nodes[_node(tensor)])[int(tensor.split(":")[1])]
            return tensor

        for node in self._graph_def.node:
            controls = [each for each in node.input if each.startswith("^")]
            read = [source(each) for each in _inputs(node)]
            del node.input[:]
            node.input.extend(read + controls)
        self.results = [source(each) for each in self.results]
        self.gradients = [None if each is None else source(each) for each in self.gradients]

    def _read(self, again: set[str]) -> list[str]:
        """Returns the names of the tensors that the gradients read if the nodes `again` are computed again."""
        ends = self._forward - again | {_node(each) for each in self.arguments}
        walk = self._walk((each for each in self.gradients if each), lambda node: node in ends)
        return [each for each in walk if _node(each) in ends]

    def _cheap_path(self, tensor: str, kept: set[str]) -> set[str]:
        """Returns the nodes that compute a tensor of kept ones, and small ones, element by element; none if others do."""
        path: set[str] = set()
        small = self._size(tensor) * _SMALL
        waiting = [tensor]
        while waiting:
            each = waiting.pop()
            node = self._nodes[_node(each)]
            if (
                each in kept
                or node.name in path
                or each in self.arguments
                or (each != tensor and self._size(each) <= small)
            ):
                continue
            if node.op not in _CHEAP or len(path) == _MOST_OPERATIONS:
                return set()
            path.add(node.name)
            waiting += _inputs(node)
        return path

    def _size(self, tensor: str) -> float:
        """Returns the bytes of a tensor; axes of unknown length count as long ones, more axes than known as none."""
        x = self._graph.get_tensor_by_name(tensor)
        lengths = x.shape.as_list() if x.shape.rank is not None else []
        return x.dtype.size * math.prod(1024 if each is None else each for each in lengths)

    def _ancestors(self, tensors: Iterable[str], given: Iterable[str] = ()) -> set[str]:
        """Returns the names of the nodes that compute tensors from given ones."""
        given = set(given)
        return {_node(each) for each in self._walk(tensors, lambda _: False, given)}

    def _walk(self, tensors: Iterable[str], is_end: Callable[[str], bool], given: Iterable[str] = ()) -> Iterator[str]:
        """Yields tensors and those from which they are computed, without given ones, to nodes at which `is_end`."""
        seen: set[str] = set(given)
        waiting = list(tensors)
        while waiting:
            tensor = waiting.pop()
            if tensor not in seen:
                seen.add(tensor)
                yield tensor
                if not is_end(_node(tensor)):
                    waiting += _inputs(self._nodes[_node(tensor)])


def _node(tensor: str) -> str:
    return tensor.split(":")[0]


def _inputs(node: tf.Operation) -> list[str]:
    """Returns the names of the tensors that a node reads, as of `tf.Tensor.name`."""
    return [each if ":" in each else f"{each}:0" for each in node.input if not each.startswith("^")]


def _without_missing(node: tf.Operation, chosen: set[str]) -> tf.compat.v1.NodeDef:
    """Returns a copy of a node without its dependencies on nodes that are not chosen."""
    copied = type(node)()
    copied.CopyFrom(node)
    copied.attr.pop("_class", None)
    kept = [each for each in node.input if not each.startswith("^") or each[1:] in chosen]
    del copied.input[:]
    copied.input.extend(kept)
    return copied
