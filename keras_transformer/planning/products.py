"""How many operations a node of a TensorFlow graph is, by its shapes."""

import math


class UnknownCostError(ValueError):
    """A cost that the graph alone does not tell."""


def elements(tensor):
    """How many elements a symbolic tensor has.

    Raises:
        UnknownCostError: its shape is not known.
    """
    count = tensor.shape.num_elements()
    if count is None:
        raise UnknownCostError(f"The shape of {tensor.name} ({tensor.op.type}) is not known: {tensor.shape}")
    return count


def terms(node):
    """Multiplications of a product, each with an addition; 0 for any other node."""
    shapes = [tuple(tensor.shape) for tensor in node.inputs]
    if node.type == "MatMul":
        return elements(node.outputs[0]) * shapes[0][0 if node.get_attr("transpose_a") else 1]
    if node.type.startswith("BatchMatMul"):
        return elements(node.outputs[0]) * shapes[0][-2 if node.get_attr("adj_x") else -1]
    if node.type in ("Einsum", "XlaEinsum"):
        return einsum_terms(node.get_attr("equation").decode(), shapes)
    if node.type.startswith(("Conv", "DepthwiseConv")):
        return _convolution_terms(node, shapes)
    return 0


def einsum_terms(equation, shapes):
    """Multiplications of an einsum: the product of the sizes of all its axes.

    Example:

    >>> einsum_terms("...ij,jk->...ik", [(5, 2, 3), (3, 4)])
    120
    """
    sizes = {}
    for axes, shape in zip(equation.replace(" ", "").split("->")[0].split(","), shapes, strict=True):
        head, _, tail = axes.partition("...")
        free = len(shape) - len(head) - len(tail)
        names = [*head, *(f".{free - index}" for index in range(free)), *tail]
        for name, size in zip(names, shape, strict=True):
            sizes[name] = max(size, sizes.get(name, 1))
    return math.prod(sizes.values())


def _convolution_terms(node, shapes):
    """Each element of the convolution's own output, whichever pass this is, reads one kernel."""
    if "BackpropFilter" in node.type:
        kernel, output = tuple(node.outputs[0].shape), shapes[2]
    elif "BackpropInput" in node.type:
        kernel, output = shapes[1], shapes[2]
    else:
        kernel, output = shapes[1], tuple(node.outputs[0].shape)
    return math.prod(output) * math.prod(kernel[:-2] if node.type.startswith("Depthwise") else kernel[:-1])
