"""Products of the same activations as one, which ONNX Runtime starts once: a decoder has many small ones for each token.

Weights stay as they are in the file. The runtime joins them when it loads, as it casts their scales. The names of the
products stay in the metadata of the node that computes them, by which the weights of a file are compared with the model's.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from keras_transformer.export.onnx.graph import NodeMaker, add_constant, attributes_of, make_node, name_of
from keras_transformer.export.onnx.options import CONTRIB
from keras_transformer.export.onnx.quantization.integer_tables import Top
from keras_transformer.export.onnx.weights.dequantize import PARTS

_PRODUCT, _ATTENTION = "MatMulNBits", "GroupQueryAttention"


class _Product(NamedTuple):
    """A product by blocks: its nodes from the first to that of its result, its offsets `(blocks, N)` and its bias `(N,)`."""

    nodes: list[ir.Node]
    sums: ir.Value | None
    offset: ir.Value | None
    bias: ir.Value | None

    @property
    def result(self) -> ir.Value:
        return self.nodes[-1].outputs[0]

    @property
    def name(self) -> str:
        """The name of the product without its bias, as in the float file."""
        return name_of(self.nodes[-1 if self.bias is None else -2].outputs[0])

    @property
    def width(self) -> int:
        return int(attributes_of(self.nodes[0])["N"])

    @property
    def kind(self) -> tuple[object, ...]:
        """What products that are joined have in common."""
        options = tuple(sorted((key, value) for key, value in attributes_of(self.nodes[0]).items() if key != "N"))
        return self.nodes[0].inputs[0], options, self.sums, self.bias is None


class Joiner:
    """Joins the products of one graph.

    Args:
        graph: `onnx_ir.Graph` of a decoder, quantized by blocks; changed in place.
        top: nodes before all others of the graph, by the name of their result; those that join weights are added.
    """

    def __init__(self, graph: ir.Graph, top: Top) -> None:
        self._graph, self._top = graph, top
        self._store = functools.partial(add_constant, graph)

    def run(self, is_single: bool) -> None:
        """Joins the projections of attention over a cache; in a graph of single tokens, all with the same activations.

        Of several tokens, cutting the results apart would take as long as starting a product.
        """
        for node in [each for each in self._graph if each.op_type == _ATTENTION]:
            self._pack(node)
        if is_single:
            for group in self._groups():
                self._split(group)

    def _groups(self) -> list[list[_Product]]:
        """Products of the same activations."""
        found: dict[tuple[object, ...], list[_Product]] = {}
        for node in self._graph:
            product = _product_from(node) if node.op_type == _PRODUCT else None
            if product is not None:
                found.setdefault(product.kind, []).append(product)
        return [group for group in found.values() if len(group) > 1]

    def _pack(self, attention: ir.Node) -> None:
        """Hands queries, keys and values to an attention as one tensor."""
        moved = [_reshaped(value) for value in attention.inputs[:3]]
        products = [None if each is None else _product_to(each.inputs[0]) for each in moved]
        known = [each for each in products if each is not None]
        if len(known) < 3 or len({each.kind for each in known}) > 1 or moved[0] is None:
            return
        make = NodeMaker(attention, self._store)
        target = _with_last(moved[0].inputs[1], sum(each.width for each in known), make)
        if target is None:
            return
        attention.replace_input_with(0, make("Reshape", self._joined(make, known), target))
        attention.replace_input_with(1, None)
        attention.replace_input_with(2, None)
        make.insert()
        self._remove([*(node for each in known for node in each.nodes), *filter(None, moved)])

    def _split(self, group: Sequence[_Product]) -> None:
        """Computes products as one, and cuts the result apart."""
        last = [each.nodes[-1] for each in group]
        first = next(node for node in self._graph if node in last)
        make = NodeMaker(first, self._store)
        joined = self._joined(make, group)
        sizes = make.constant(np.array([each.width for each in group]), "widths")
        parts = [ir.Value(name=each.result.name) for each in group]
        cut = ir.node("Split", [joined, sizes], {"axis": -1}, outputs=parts, name=f"{first.name}/Split")
        make.insert()
        self._graph.insert_before(first, cut)
        for each, part in zip(group, parts, strict=True):
            each.result.replace_all_uses_with(part, replace_graph_outputs=True)
        self._remove([node for each in group for node in each.nodes])

    def _joined(self, make: NodeMaker, products: Sequence[_Product]) -> ir.Value:
        """The result of products as one, with their offsets and biases."""
        first = products[0].nodes[0]
        codes, scale = (self._concat([each.nodes[0].inputs[number] for each in products], 0) for number in (1, 2))
        options = attributes_of(first) | {"N": sum(each.width for each in products)}
        found = make(_PRODUCT, first.inputs[0], codes, scale, domain=CONTRIB, **options)
        if products[0].offset is not None:
            found = make("Gemm", products[0].sums, self._concat([each.offset for each in products], 1), found)
        node = found.producer()
        if node is not None:
            node.metadata_props[PARTS] = json.dumps({each.name: each.width for each in products})
        if products[0].bias is not None:
            return make("Add", found, self._concat([each.bias for each in products], 0))
        return found

    def _concat(self, values: Sequence[ir.Value | None], axis: int) -> ir.Value:
        name = f"{name_of(values[0])}/joined"
        self._top[name] = make_node("Concat", tuple(values), name, name, axis=axis)
        return self._top[name].outputs[0]

    def _remove(self, nodes: Sequence[ir.Node]) -> None:
        """Removes nodes of which nothing is read any more, the last first."""
        for node in sorted(nodes, key=list(self._graph).index, reverse=True):
            self._graph.remove(node, safe=True)


def _only_user(value: ir.Value) -> ir.Node | None:
    users = [node for node, _ in value.uses()]
    return users[0] if len(users) == 1 and not value.is_graph_output() else None


def _reshaped(value: ir.Value | None) -> ir.Node | None:
    """The reshape that a value comes from, if nothing else reads it."""
    node = None if value is None else value.producer()
    is_own = value is not None and node is not None and node.op_type == "Reshape" and _only_user(value) is not None
    return node if is_own else None


def _product_from(node: ir.Node) -> _Product | None:
    """The product that begins with a node, and ends with its offsets or its bias; None where more is added."""
    nodes, sums, offset, bias = [node], None, None, None
    if len(node.inputs) > 3:
        return None
    user = _only_user(node.outputs[0])
    if user is not None and user.op_type == "Gemm" and user.inputs[2:] == (node.outputs[0],):
        nodes, (sums, offset) = [*nodes, user], user.inputs[:2]
        user = _only_user(user.outputs[0])
    if user is not None and user.op_type == "Add":
        found = [each for each in user.inputs if each is not None and _is_vector(each)]
        if found:
            nodes, bias = [*nodes, user], found[0]
    return _Product(nodes, sums, offset, bias)


def _product_to(value: ir.Value | None) -> _Product | None:
    """The product that ends with a value, which nothing else reads."""
    if value is None or _only_user(value) is None:
        return None
    node = value.producer()
    while node is not None and node.op_type in ("Add", "Gemm"):
        sources = [each.producer() for each in node.inputs if each is not None]
        node = next((each for each in sources if each is not None and each.op_type in ("Gemm", _PRODUCT)), None)
    product = _product_from(node) if node is not None and node.op_type == _PRODUCT else None
    return product if product is not None and product.result is value else None


def _is_vector(value: ir.Value) -> bool:
    return value.is_initializer() and value.shape is not None and len(value.shape) == 1


def _with_last(target: ir.Value | None, width: int, make: NodeMaker) -> ir.Value | None:
    """The target of a reshape with another size of the last axis, or None where it is not known which number that is."""
    if target is None:
        return None
    if target.const_value is not None:
        return make.constant(np.append(target.const_value.numpy()[:-1], width), "packed")
    node = target.producer()
    if node is None or node.op_type != "Concat" or node.inputs[-1] is None:
        return None
    last = node.inputs[-1].const_value
    if last is None:
        return None
    return make("Concat", *node.inputs[:-1], make.constant(np.append(last.numpy()[:-1], width), "packed"), axis=0)
