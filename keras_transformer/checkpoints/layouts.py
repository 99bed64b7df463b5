"""How tensors of a checkpoint lie beside the weights of a model, in both directions."""

import math

import numpy as np


class Layout:
    """Base of the layouts: as many tensors as weights, of the same shapes.

    A layout moves numbers and changes none, so that a checkpoint comes back byte for byte.
    """

    def shapes(self, shapes):
        """The shapes of the tensors, from those of the weights: list of tuples."""
        return shapes

    def read(self, tensors, shapes):
        """The weights, of these shapes, from the tensors: lists of arrays."""
        return tensors

    def write(self, weights):
        """The tensors from the weights: lists of arrays."""
        return weights


class Flat(Layout):
    """A weight of any rank in a tensor of rank 1, as the biases of heads `(N, H)`."""

    def shapes(self, shapes):
        return [(math.prod(shape),) for shape in shapes]

    def read(self, tensors, shapes):
        return [tensor.reshape(shape) for tensor, shape in zip(tensors, shapes, strict=True)]

    def write(self, weights):
        return [weight.reshape(-1) for weight in weights]


class Matrix(Layout):
    """A kernel of any rank in a matrix.

    Args:
        inputs: int: how many axes of the kernel, the first ones, are inputs: 1 for `(D, N, H)`, 2 for `(N, H, D)`.
        transposed: bool. True: the matrix is `(outputs, inputs)`, as torch's `Linear` has it; False: `(inputs, outputs)`.
    """

    def __init__(self, inputs=1, transposed=True):
        self.inputs = inputs
        self.transposed = transposed

    def shapes(self, shapes):
        flat = [(math.prod(shape[: self.inputs]), math.prod(shape[self.inputs :])) for shape in shapes]
        return [shape[::-1] for shape in flat] if self.transposed else flat

    def read(self, tensors, shapes):
        tensors = [tensor.T for tensor in tensors] if self.transposed else tensors
        return [tensor.reshape(shape) for tensor, shape in zip(tensors, shapes, strict=True)]

    def write(self, weights):
        flat = [weight.reshape(math.prod(weight.shape[: self.inputs]), -1) for weight in weights]
        return [matrix.T for matrix in flat] if self.transposed else flat


class Expanded(Layout):
    """A weight in a tensor that has more axes, of size 1.

    Args:
        count: int: how many.
        axis: int: before which axis of the weight they stand.
    """

    def __init__(self, count=1, axis=0):
        self.count = count
        self.axis = axis

    def shapes(self, shapes):
        return [(*shape[: self.axis], *(1,) * self.count, *shape[self.axis :]) for shape in shapes]

    def read(self, tensors, shapes):
        return [tensor.reshape(shape) for tensor, shape in zip(tensors, shapes, strict=True)]

    def write(self, weights):
        shapes = self.shapes([weight.shape for weight in weights])
        return [weight.reshape(shape) for weight, shape in zip(weights, shapes, strict=True)]


class Transposed(Layout):
    """A weight whose axes stand in another order.

    Args:
        axes: tuple of ints: for each axis of the tensor, the axis of the weight that it is; `(3, 2, 0, 1)` takes a kernel
            of Keras's `Conv2D`, `(height, width, inputs, outputs)`, to torch's.
    """

    def __init__(self, axes):
        self.axes = axes

    def shapes(self, shapes):
        return [tuple(shape[axis] for axis in self.axes) for shape in shapes]

    def read(self, tensors, shapes):
        return [tensor.transpose(np.argsort(self.axes)) for tensor in tensors]

    def write(self, weights):
        return [weight.transpose(self.axes) for weight in weights]


class Fused(Layout):
    """One tensor that holds several weights behind one another.

    Args:
        layout: `Layout`. Of each part.
        axis: int. Of the tensor.
    """

    def __init__(self, layout, axis=0):
        self.layout = layout
        self.axis = axis

    def shapes(self, shapes):
        parts = self.layout.shapes(shapes)
        whole = list(parts[0])
        whole[self.axis] = sum(part[self.axis] for part in parts)
        return [tuple(whole)]

    def read(self, tensors, shapes):
        sizes = [part[self.axis] for part in self.layout.shapes(shapes)]
        parts = np.split(tensors[0], np.cumsum(sizes)[:-1], axis=self.axis)
        return self.layout.read(parts, shapes)

    def write(self, weights):
        return [np.concatenate(self.layout.write(weights), axis=self.axis)]


class HeadByHead(Layout):
    """One tensor that holds several weights of heads, of each head all of its parts, as BLOOM's queries, keys and values.

    A weight is `(..., N, H)`, and the tensor of P of them `(N · P · H, ...)`.
    """

    def shapes(self, shapes):
        *leading, heads, width = shapes[0]
        return [(len(shapes) * heads * width, *leading)]

    def read(self, tensors, shapes):
        *leading, heads, width = shapes[0]
        parts = tensors[0].T.reshape(*leading, heads, len(shapes), width)
        return [parts[..., index, :] for index in range(len(shapes))]

    def write(self, weights):
        leading = weights[0].shape[:-2]
        return [np.stack(weights, axis=-2).reshape(*leading, -1).T]


class Stacked(Layout):
    """Several tensors in one weight with one more axis in front, as the experts of a mixture.

    Args:
        count: int: how many tensors.
        layout: `Layout`. Of each.
    """

    def __init__(self, count, layout):
        self.count = count
        self.layout = layout

    def shapes(self, shapes):
        return self.layout.shapes([shapes[0][1:]] * self.count)

    def read(self, tensors, shapes):
        return [np.stack(self.layout.read(tensors, [shapes[0][1:]] * self.count))]

    def write(self, weights):
        return self.layout.write(list(weights[0]))
