"""Layouts of tensors in checkpoints relative to weights of models, in both directions."""

from __future__ import annotations

import math

import numpy as np

_Shapes = list[tuple[int, ...]]
_Arrays = list[np.ndarray]


class Layout:
    """Base class of the layouts, and the identity: one tensor per weight, of the same shape.

    A layout changes no values, so that a checkpoint is written back byte for byte.

    Attributes:
        dtypes: tuple of safetensors' names of the dtypes that the tensors may have.
    """

    dtypes: tuple[str, ...] = ("F64", "F32", "F16", "BF16")

    def shapes(self, shapes: _Shapes) -> _Shapes:
        """Returns the shapes of the tensors from those of the weights: list of tuples."""
        return shapes

    def read(self, tensors: _Arrays, shapes: _Shapes) -> _Arrays:
        """Returns the weights, of these shapes, from the tensors: lists of arrays."""
        return tensors

    def write(self, weights: _Arrays) -> _Arrays:
        """Returns the tensors from the weights: lists of arrays."""
        return weights


class Flat(Layout):
    """A weight of any rank as a tensor of rank 1, such as the biases of heads `(N, H)`."""

    def shapes(self, shapes: _Shapes) -> _Shapes:
        return [(math.prod(shape),) for shape in shapes]

    def read(self, tensors: _Arrays, shapes: _Shapes) -> _Arrays:
        return [tensor.reshape(shape) for tensor, shape in zip(tensors, shapes, strict=True)]

    def write(self, weights: _Arrays) -> _Arrays:
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

    def shapes(self, shapes: _Shapes) -> _Shapes:
        flat: _Shapes = [(math.prod(shape[: self.inputs]), math.prod(shape[self.inputs :])) for shape in shapes]
        return [shape[::-1] for shape in flat] if self.transposed else flat

    def read(self, tensors: _Arrays, shapes: _Shapes) -> _Arrays:
        tensors = [tensor.T for tensor in tensors] if self.transposed else tensors
        return [tensor.reshape(shape) for tensor, shape in zip(tensors, shapes, strict=True)]

    def write(self, weights: _Arrays) -> _Arrays:
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

    def shapes(self, shapes: _Shapes) -> _Shapes:
        inserted, after = (1,) * self.count, (1,) * self.after
        return [(*shape[: self.axis], *inserted, *shape[self.axis :], *after) for shape in shapes]

    def read(self, tensors: _Arrays, shapes: _Shapes) -> _Arrays:
        return [tensor.reshape(shape) for tensor, shape in zip(tensors, shapes, strict=True)]

    def write(self, weights: _Arrays) -> _Arrays:
        shapes = self.shapes([weight.shape for weight in weights])
        return [weight.reshape(shape) for weight, shape in zip(weights, shapes, strict=True)]


class PointConvolution(Layout):
    """A dense kernel, `(inputs, outputs)`, as that of a 1 x 1 convolution of torch, `(outputs, inputs, 1, 1)`.

    Args:
        rank: int. The number of axes that the convolution runs over: 1 for `(outputs, inputs, 1)`.
    """

    def __init__(self, rank: int = 2) -> None:
        self.ones = (1,) * rank

    def shapes(self, shapes: _Shapes) -> _Shapes:
        return [(*shape[::-1], *self.ones) for shape in shapes]

    def read(self, tensors: _Arrays, shapes: _Shapes) -> _Arrays:
        return [tensor.reshape(tensor.shape[:2]).T for tensor in tensors]

    def write(self, weights: _Arrays) -> _Arrays:
        return [weight.T.reshape(*weight.shape[::-1], *self.ones) for weight in weights]


class PatchConvolution(Layout):
    """A dense kernel of whole patches, `(inputs, outputs)`, as that of a convolution of torch, `(outputs, *patch)`.

    Args:
        patch: tuple of ints. The shape of a patch, channels first: `(channels, frames, rows, columns)`.
    """

    def __init__(self, patch: tuple[int, ...]) -> None:
        self.patch = patch

    def shapes(self, shapes: _Shapes) -> _Shapes:
        return [(shape[1], *self.patch) for shape in shapes]

    def read(self, tensors: _Arrays, shapes: _Shapes) -> _Arrays:
        return [tensor.reshape(len(tensor), -1).T for tensor in tensors]

    def write(self, weights: _Arrays) -> _Arrays:
        return [weight.T.reshape(-1, *self.patch) for weight in weights]


class Sinusoidal(Layout):
    """A kernel `(D, N, H)` whose inputs are sines, then cosines, as a matrix `(N · H, D)` of sines and cosines in turn."""

    def shapes(self, shapes: _Shapes) -> _Shapes:
        return [(math.prod(shape[1:]), shape[0]) for shape in shapes]

    def read(self, tensors: _Arrays, shapes: _Shapes) -> _Arrays:
        rows = [np.concatenate([tensor.T[::2], tensor.T[1::2]]) for tensor in tensors]
        return [each.reshape(shape) for each, shape in zip(rows, shapes, strict=True)]

    def write(self, weights: _Arrays) -> _Arrays:
        halves = [np.split(weight.reshape(weight.shape[0], -1), 2) for weight in weights]
        return [np.stack(pair, axis=1).reshape(-1, pair[0].shape[1]).T for pair in halves]


class Empty(Layout):
    """A tensor without elements, which is no weight.

    Args:
        shape: tuple of ints.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape

    def shapes(self, shapes: _Shapes) -> _Shapes:
        return [self.shape]

    def read(self, tensors: _Arrays, shapes: _Shapes) -> _Arrays:
        return []

    def write(self, weights: _Arrays) -> _Arrays:
        return [np.zeros(self.shape, "float32")]


class Transposed(Layout):
    """A weight as a tensor with permuted axes.

    Args:
        axes: tuple of ints. For each axis of the tensor, the axis of the weight; `(3, 2, 0, 1)` for a kernel of Keras's
            `Conv2D`, `(height, width, inputs, outputs)`, in torch.
    """

    def __init__(self, axes: tuple[int, ...]) -> None:
        self.axes = axes

    def shapes(self, shapes: _Shapes) -> _Shapes:
        return [tuple(shape[axis] for axis in self.axes) for shape in shapes]

    def read(self, tensors: _Arrays, shapes: _Shapes) -> _Arrays:
        return [tensor.transpose(np.argsort(self.axes)) for tensor in tensors]

    def write(self, weights: _Arrays) -> _Arrays:
        return [weight.transpose(self.axes) for weight in weights]


class Fused(Layout):
    """One tensor that is the concatenation of several weights.

    Args:
        layout: `Layout` of each part.
        axis: int. The axis of the tensor.
    """

    def __init__(self, layout: Layout, axis: int = 0) -> None:
        self.layout = layout
        self.axis = axis

    def shapes(self, shapes: _Shapes) -> _Shapes:
        parts = self.layout.shapes(shapes)
        whole = list(parts[0])
        whole[self.axis] = sum(part[self.axis] for part in parts)
        return [tuple(whole)]

    def read(self, tensors: _Arrays, shapes: _Shapes) -> _Arrays:
        sizes = [part[self.axis] for part in self.layout.shapes(shapes)]
        parts = np.split(tensors[0], np.cumsum(sizes)[:-1], axis=self.axis)
        return self.layout.read(parts, shapes)

    def write(self, weights: _Arrays) -> _Arrays:
        return [np.concatenate(self.layout.write(weights), axis=self.axis)]


class Joined(Layout):
    """Several tensors that are joined along an axis of one weight, such as the convolutions of Kimi Linear.

    Args:
        shares: tuple of ints. How long the tensors are along the axis, as multiples of one length.
        layout: `Layout` of each tensor. Default: the same.
        axis: int. The axis of the weight. Default 0.
    """

    def __init__(self, shares: tuple[int, ...], layout: Layout | None = None, axis: int = 0) -> None:
        self.shares = shares
        self.layout = layout or Layout()
        self.axis = axis

    def shapes(self, shapes: _Shapes) -> _Shapes:
        return self.layout.shapes(self._parts(shapes[0]))

    def read(self, tensors: _Arrays, shapes: _Shapes) -> _Arrays:
        return [np.concatenate(self.layout.read(tensors, self._parts(shapes[0])), axis=self.axis)]

    def write(self, weights: _Arrays) -> _Arrays:
        ends = np.cumsum([part[self.axis] for part in self._parts(weights[0].shape)])
        return self.layout.write(np.split(weights[0], ends[:-1], axis=self.axis))

    def _parts(self, shape: tuple[int, ...]) -> _Shapes:
        length, (before, after) = shape[self.axis] // sum(self.shares), (shape[: self.axis], shape[self.axis + 1 :])
        return [(*before, length * share, *after) for share in self.shares]


class GridTable(Layout):
    """A table with a row for each place of a grid, `(rows · columns, D)`, as a tensor `(1, rows, columns, D)`.

    Args:
        rows, columns: ints. The grid.
    """

    def __init__(self, rows: int, columns: int) -> None:
        self.grid = rows, columns

    def shapes(self, shapes: _Shapes) -> _Shapes:
        return [(1, *self.grid, *shape[1:]) for shape in shapes]

    def read(self, tensors: _Arrays, shapes: _Shapes) -> _Arrays:
        return [tensor.reshape(shape) for tensor, shape in zip(tensors, shapes, strict=True)]

    def write(self, weights: _Arrays) -> _Arrays:
        return [weight.reshape(1, *self.grid, *weight.shape[1:]) for weight in weights]


class Interleaved(Layout):
    """One tensor of several weights of one shape, whose last axes are interleaved.

    Element i of weight p of P is at `i · P + p`, such as in the gates and hidden layers of gpt-oss.
    """

    def shapes(self, shapes: _Shapes) -> _Shapes:
        return [(*shapes[0][:-1], len(shapes) * shapes[0][-1])]

    def read(self, tensors: _Arrays, shapes: _Shapes) -> _Arrays:
        return [tensors[0][..., index :: len(shapes)] for index in range(len(shapes))]

    def write(self, weights: _Arrays) -> _Arrays:
        return [np.stack(weights, axis=-1).reshape(self.shapes([weight.shape for weight in weights])[0])]


class HeadByHead(Layout):
    """One tensor of several weights, interleaved by head, such as BLOOM's queries, keys and values.

    A weight is `(..., N, H)`, and the tensor of P weights `(N · P · H, ...)`. Of weights with different numbers of heads,
    such as Falcon's grouped queries, each group of the tensor has one head of the smallest, and its share of the others.

    Args:
        groups: int. The number of groups, for weights `(..., N · H)`, such as those of Qwen3-Next; None for weights
            `(..., N, H)`, whose smallest N it is.
    """

    def __init__(self, groups: int | None = None) -> None:
        self.groups = groups

    def shapes(self, shapes: _Shapes) -> _Shapes:
        leading, sizes = self._sizes(shapes)
        return [(sum(sizes), *leading)]

    def read(self, tensors: _Arrays, shapes: _Shapes) -> _Arrays:
        leading, sizes = self._sizes(shapes)
        groups = self._count(shapes)
        whole = tensors[0].T.reshape(*leading, groups, -1)
        parts = np.split(whole, np.cumsum([size // groups for size in sizes])[:-1], axis=-1)
        return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]

    def write(self, weights: _Arrays) -> _Arrays:
        shapes = [weight.shape for weight in weights]
        leading, _ = self._sizes(shapes)
        parts = [weight.reshape(*leading, self._count(shapes), -1) for weight in weights]
        return [np.concatenate(parts, axis=-1).reshape(*leading, -1).T]

    def _sizes(self, shapes: _Shapes) -> tuple[tuple[int, ...], list[int]]:
        """Returns the leading axes, and the number of features of all heads of each weight."""
        axes = 2 if self.groups is None else 1
        return shapes[0][:-axes], [math.prod(shape[-axes:]) for shape in shapes]

    def _count(self, shapes: _Shapes) -> int:
        return min(shape[-2] for shape in shapes) if self.groups is None else self.groups


class Stacked(Layout):
    """Several tensors stacked into one weight along a new first axis, such as the experts of a mixture.

    Args:
        count: int. The number of tensors.
        layout: `Layout` of each tensor.
    """

    def __init__(self, count: int, layout: Layout) -> None:
        self.count = count
        self.layout = layout

    def shapes(self, shapes: _Shapes) -> _Shapes:
        return self.layout.shapes([shapes[0][1:]] * self.count)

    def read(self, tensors: _Arrays, shapes: _Shapes) -> _Arrays:
        return [np.stack(self.layout.read(tensors, [shapes[0][1:]] * self.count))]

    def write(self, weights: _Arrays) -> _Arrays:
        return self.layout.write(list(weights[0]))


class WeightNormalized(Layout):
    """The norms g and the directions v of a kernel of one dimension, as of torch's weight normalization: `g v / |v|`.

    Each slice along one axis of v has a norm of its own; g has the length of v along it, and 1 along all others. The product
    is the weight. As long as the weight is the product of the tensors that were read, these are written back byte for byte;
    after training, v is the weight itself.

    Args:
        layout: `Layout` between the weights and one tensor of the shape of v.
        axis: int. The axis of v. Default -1, as in wav2vec 2.0; torch's default is 0.
    """

    def __init__(self, layout: Layout, axis: int = -1) -> None:
        self.layout = layout
        self.axis = axis
        self._read: _Arrays | None = None

    def shapes(self, shapes: _Shapes) -> _Shapes:
        (whole,) = self.layout.shapes(shapes)
        norms = [1] * len(whole)
        norms[self.axis] = whole[self.axis]
        return [tuple(norms), whole]

    def read(self, tensors: _Arrays, shapes: _Shapes) -> _Arrays:
        self._read = tensors
        return self.layout.read([self._product(*tensors)], shapes)

    def write(self, weights: _Arrays) -> _Arrays:
        (whole,) = self.layout.write(weights)
        if self._read is not None and np.array_equal(self._product(*self._read).astype(whole.dtype), whole):
            return self._read
        return [self._norms(whole).astype("float32"), whole]

    def _norms(self, directions: np.ndarray) -> np.ndarray:
        """Returns the norm of each slice, in float64."""
        axes = tuple(axis for axis in range(directions.ndim) if axis != self.axis % directions.ndim)
        return np.sqrt(np.sum(np.square(directions.astype("float64")), axis=axes, keepdims=True))

    def _product(self, norms: np.ndarray, directions: np.ndarray) -> np.ndarray:
        # A slice of zeros has no direction.
        scale = norms.astype("float64") / np.maximum(self._norms(directions), np.finfo("float64").tiny)
        return (scale * directions.astype("float64")).astype("float32")
