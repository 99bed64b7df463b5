"""Layouts of one weight as one tensor: other shapes, and other orders of the axes."""

from __future__ import annotations

import math

import numpy as np

from keras_transformer.checkpoints.layouts.layout import Arrays, Layout, Shapes


class Flat(Layout):
    """A weight of any rank as a tensor of rank 1, such as the biases of heads `(N, H)`."""

    def shapes(self, shapes: Shapes) -> Shapes:
        return [(math.prod(shape),) for shape in shapes]

    def read(self, tensors: Arrays, shapes: Shapes) -> Arrays:
        return [tensor.reshape(shape) for tensor, shape in zip(tensors, shapes, strict=True)]

    def write(self, weights: Arrays) -> Arrays:
        return [weight.reshape(-1) for weight in weights]


class Matrix(Layout):
    """A kernel of any rank as a matrix.

    Args:
        inputs: int. The number of leading axes of the kernel that are inputs: 1 for `(D, N, H)`, 2 for `(N, H, D)`.
        transposed: bool. True for a matrix `(outputs, inputs)`, as of torch's `Linear`; False for `(inputs, outputs)`.
    """

    def __init__(self, inputs: int = 1, transposed: bool = True) -> None:
        self.inputs = inputs
        self.transposed = transposed

    def shapes(self, shapes: Shapes) -> Shapes:
        flat: Shapes = [(math.prod(shape[: self.inputs]), math.prod(shape[self.inputs :])) for shape in shapes]
        return [shape[::-1] for shape in flat] if self.transposed else flat

    def read(self, tensors: Arrays, shapes: Shapes) -> Arrays:
        tensors = [tensor.T for tensor in tensors] if self.transposed else tensors
        return [tensor.reshape(shape) for tensor, shape in zip(tensors, shapes, strict=True)]

    def write(self, weights: Arrays) -> Arrays:
        flat = [weight.reshape(math.prod(weight.shape[: self.inputs]), -1) for weight in weights]
        return [matrix.T for matrix in flat] if self.transposed else flat


class Expanded(Layout):
    """A weight as a tensor with additional axes of size 1.

    Args:
        count: int. The number of additional axes.
        axis: int. The axis of the weight before which they are inserted.
        after: int. The number of additional axes at the end.
    """

    def __init__(self, count: int = 1, axis: int = 0, after: int = 0) -> None:
        self.count = count
        self.axis = axis
        self.after = after

    def shapes(self, shapes: Shapes) -> Shapes:
        inserted, after = (1,) * self.count, (1,) * self.after
        return [(*shape[: self.axis], *inserted, *shape[self.axis :], *after) for shape in shapes]

    def read(self, tensors: Arrays, shapes: Shapes) -> Arrays:
        return [tensor.reshape(shape) for tensor, shape in zip(tensors, shapes, strict=True)]

    def write(self, weights: Arrays) -> Arrays:
        shapes = self.shapes([weight.shape for weight in weights])
        return [weight.reshape(shape) for weight, shape in zip(weights, shapes, strict=True)]


class GridTable(Layout):
    """A table with a row for each place of a grid, `(rows · columns, D)`, as a tensor `(1, rows, columns, D)`.

    Args:
        rows, columns: ints. The grid.
    """

    def __init__(self, rows: int, columns: int) -> None:
        self.grid = rows, columns

    def shapes(self, shapes: Shapes) -> Shapes:
        return [(1, *self.grid, *shape[1:]) for shape in shapes]

    def read(self, tensors: Arrays, shapes: Shapes) -> Arrays:
        return [tensor.reshape(shape) for tensor, shape in zip(tensors, shapes, strict=True)]

    def write(self, weights: Arrays) -> Arrays:
        return [weight.reshape(1, *self.grid, *weight.shape[1:]) for weight in weights]


class Transposed(Layout):
    """A weight as a tensor with permuted axes.

    Args:
        axes: tuple of ints. For each axis of the tensor, the axis of the weight; `(3, 2, 0, 1)` for a kernel of Keras's
            `Conv2D`, `(height, width, inputs, outputs)`, in torch.
    """

    def __init__(self, axes: tuple[int, ...]) -> None:
        self.axes = axes

    def shapes(self, shapes: Shapes) -> Shapes:
        return [tuple(shape[axis] for axis in self.axes) for shape in shapes]

    def read(self, tensors: Arrays, shapes: Shapes) -> Arrays:
        return [tensor.transpose(np.argsort(self.axes)) for tensor in tensors]

    def write(self, weights: Arrays) -> Arrays:
        return [weight.transpose(self.axes) for weight in weights]
