"""Lists of one element that a loop carries, such as the state of `keras.ops.scan`, as that element.

tf2onnx takes each list that a loop writes for one of its outputs, to which an iteration adds an element.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import tensorflow as tf

from keras_transformer.export.graph.part import constant_value, node_name
from keras_transformer.export.operations.insertion import rename
from keras_transformer.export.operations.loops.counters import LOOPS, VARIANT, has_lists

if TYPE_CHECKING:
    from tensorflow.core.framework.attr_value_pb2 import AttrValue
    from tensorflow.core.framework.function_pb2 import FunctionDef
    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef
    from tensorflow.core.framework.tensor_shape_pb2 import TensorShapeProto

_READ, _WRITE, _MADE, _COPY = "TensorListGetItem", "TensorListSetItem", "TensorListReserve", "Identity"
# What functions call the result of each.
_RESULTS = {_READ: "item", _WRITE: "output_handle", _COPY: "output"}


def with_carried_elements(graph_def: GraphDef) -> GraphDef:
    """A copy of a `GraphDef` in which loops carry elements in place of such lists; the same one if it has none."""
    if not has_lists(graph_def):
        return graph_def
    copy: GraphDef = tf.compat.v1.GraphDef()
    copy.CopyFrom(graph_def)
    functions = {each.signature.name: each for each in copy.library.function}
    found = False
    for owner in (None, *copy.library.function):
        nodes = copy.node if owner is None else owner.node_def
        for loop in [each for each in nodes if each.op in LOOPS]:
            for position, kind in enumerate(loop.attr["T"].list.type):
                part = _CarriedList.of(nodes, loop, position, functions) if kind == VARIANT else None
                if part is not None:
                    part.replace(owner)
                    found = True
    return copy if found else graph_def


class _CarriedList(NamedTuple):
    """A list of one element that a loop carries.

    Args:
        loop: the `NodeDef` of the loop.
        position: of the list among what the loop carries.
        first: the `NodeDef` that writes its first element.
        reads: the `NodeDef`s that read it from the loop.
        body: the `FunctionDef` of the loop.
        condition: that of its condition.
        uses: the `NodeDef`s of the body that read and write it.
    """

    loop: NodeDef
    position: int
    first: NodeDef
    reads: list[NodeDef]
    body: FunctionDef
    condition: FunctionDef
    uses: list[NodeDef]

    @classmethod
    def of(
        cls, nodes: Iterable[NodeDef], loop: NodeDef, position: int, functions: Mapping[str, FunctionDef]
    ) -> _CarriedList | None:
        """The list at a position, or None if it has more elements, or something else is done with it."""
        named = {node.name: node for node in nodes}
        first = named.get(node_name(loop.input[position]))
        made = named.get(node_name(first.input[0])) if first is not None and first.op == _WRITE else None
        if first is None or made is None or made.op != _MADE:
            return None
        size = constant_value(named.get(node_name(made.input[1])))
        body, condition = (functions[loop.attr[each].func.name] for each in ("body", "cond"))
        argument = body.signature.input_arg[position].name
        uses = _chain(body.node_def, [argument])
        results = {f"{loop.name}:{position}", f"{loop.name}:output:{position}", *([loop.name] if not position else [])}
        reads = [node for node in named.values() if results & set(node.input)]
        of_condition = condition.signature.input_arg[position].name
        is_read = any(of_condition in node.input for node in condition.node_def)
        is_plain = uses is not None and all(each.op == _READ for each in reads) and not is_read
        is_own = sum(loop.input[position] in node.input for node in named.values()) == 1
        if size is None or int(size) != 1 or uses is None or not is_plain or not is_own:
            return None
        return cls(loop, position, first, reads, body, condition, uses)

    def replace(self, owner: FunctionDef | None) -> None:
        """Lets the loop carry the element; it is in a function or, for None, in the graph."""
        kind, shape = self.first.attr["element_dtype"].type, self._shape()
        self.loop.input[self.position] = self.first.input[2]
        self.loop.attr["T"].list.type[self.position] = kind
        for name in ("output_shapes", "_output_shapes"):
            if name in self.loop.attr and self.loop.attr[name].list.shape:
                self.loop.attr[name].list.shape[self.position].CopyFrom(shape)
        for function in (self.body, self.condition):
            function.signature.input_arg[self.position].type = kind
            described = function.arg_attr[self.position].attr["_output_shapes"].list
            del described.shape[:]
            described.shape.add().CopyFrom(shape)
        self.body.signature.output_arg[self.position].type = kind
        for function, uses in ((self.body, self.uses), (owner, self.reads)):
            names = {f"{node.name}:{_RESULTS[node.op]}:0": f"{node.name}:output:0" for node in uses}
            for node in uses:
                _make_identity(node, kind)
            if function is not None:
                rename(function, names)

    def _shape(self) -> TensorShapeProto:
        """The shape of the element, as far as it is known from a read of it."""
        known = [node.attr["_output_shapes"] for node in (*self.uses, *self.reads) if node.op == _READ]
        shapes = [each.list.shape[0] for each in known if each.list.shape]
        return shapes[0] if shapes else tf.TensorShape(None).as_proto()


def _chain(nodes: Sequence[NodeDef], names: Sequence[str]) -> list[NodeDef] | None:
    """The operations that read, write and return a list of some names; None if there are others."""
    chain: set[str] = set(names)
    found: list[NodeDef] = []
    for node in nodes:
        if chain & set(node.input):
            if node.op not in _RESULTS:
                return None
            found.append(node)
            if node.op != _READ:
                chain.add(f"{node.name}:{_RESULTS[node.op]}:0")
    return found


def _make_identity(node: NodeDef, kind: int) -> None:
    """Makes a `NodeDef` that reads or returns an element return it, or one that writes it return what it writes."""
    source = node.input[2] if node.op == _WRITE else node.input[0]
    shapes: AttrValue = tf.compat.v1.AttrValue()
    if node.op == _READ:
        shapes.CopyFrom(node.attr["_output_shapes"])
    node.op = _COPY
    node.input[:] = [source]
    node.attr.clear()
    node.attr["T"].type = kind
    if shapes.list.shape:
        node.attr["_output_shapes"].CopyFrom(shapes)
