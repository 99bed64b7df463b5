"""Layouts of several weights in one tensor, of several tensors in one weight, and of tensors that are no weight."""

from __future__ import annotations

import math

import numpy as np

from keras_transformer.checkpoints.layouts.layout import Arrays, Layout, Shapes


class Fused(Layout):
    """One tensor that is the concatenation of several weights.

    Args:
        layout: `Layout` of each part.
        axis: int. The axis of the tensor.
    """

    def __init__(self, layout: Layout, axis: int = 0) -> None:
        self.layout = layout
        self.axis = axis

    def shapes(self, shapes: Shapes) -> Shapes:
        parts = self.layout.shapes(shapes)
        whole = list(parts[0])
        whole[self.axis] = sum(part[self.axis] for part in parts)
        return [tuple(whole)]

    def read(self, tensors: Arrays, shapes: Shapes) -> Arrays:
        sizes = [part[self.axis] for part in self.layout.shapes(shapes)]
        parts = np.split(tensors[0], np.cumsum(sizes)[:-1], axis=self.axis)
        return self.layout.read(parts, shapes)

    def write(self, weights: Arrays) -> Arrays:
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

    def shapes(self, shapes: Shapes) -> Shapes:
        return self.layout.shapes(self._parts(shapes[0]))

    def read(self, tensors: Arrays, shapes: Shapes) -> Arrays:
        return [np.concatenate(self.layout.read(tensors, self._parts(shapes[0])), axis=self.axis)]

    def write(self, weights: Arrays) -> Arrays:
        ends = np.cumsum([part[self.axis] for part in self._parts(weights[0].shape)])
        return self.layout.write(np.split(weights[0], ends[:-1], axis=self.axis))

    def _parts(self, shape: tuple[int, ...]) -> Shapes:
        length, (before, after) = shape[self.axis] // sum(self.shares), (shape[: self.axis], shape[self.axis + 1 :])
        return [(*before, length * share, *after) for share in self.shares]


class Interleaved(Layout):
    """One tensor of several weights of one shape, whose last axes are interleaved.

    Element i of weight p of P is at `i · P + p`, such as in the gates and hidden layers of gpt-oss.
    """

    def shapes(self, shapes: Shapes) -> Shapes:
        return [(*shapes[0][:-1], len(shapes) * shapes[0][-1])]

    def read(self, tensors: Arrays, shapes: Shapes) -> Arrays:
        return [tensors[0][..., index :: len(shapes)] for index in range(len(shapes))]

    def write(self, weights: Arrays) -> Arrays:
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

    def shapes(self, shapes: Shapes) -> Shapes:
        leading, sizes = self._sizes(shapes)
        return [(sum(sizes), *leading)]

    def read(self, tensors: Arrays, shapes: Shapes) -> Arrays:
        leading, sizes = self._sizes(shapes)
        groups = self._count(shapes)
        whole = tensors[0].T.reshape(*leading, groups, -1)
        parts = np.split(whole, np.cumsum([size // groups for size in sizes])[:-1], axis=-1)
        return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]

    def write(self, weights: Arrays) -> Arrays:
        shapes = [weight.shape for weight in weights]
        leading, _ = self._sizes(shapes)
        parts = [weight.reshape(*leading, self._count(shapes), -1) for weight in weights]
        return [np.concatenate(parts, axis=-1).reshape(*leading, -1).T]

    def _sizes(self, shapes: Shapes) -> tuple[tuple[int, ...], list[int]]:
        """Returns the leading axes, and the number of features of all heads of each weight."""
        axes = 2 if self.groups is None else 1
        return shapes[0][:-axes], [math.prod(shape[-axes:]) for shape in shapes]

    def _count(self, shapes: Shapes) -> int:
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

    def shapes(self, shapes: Shapes) -> Shapes:
        return self.layout.shapes([shapes[0][1:]] * self.count)

    def read(self, tensors: Arrays, shapes: Shapes) -> Arrays:
        return [np.stack(self.layout.read(tensors, [shapes[0][1:]] * self.count))]

    def write(self, weights: Arrays) -> Arrays:
        return self.layout.write(list(weights[0]))


class Empty(Layout):
    """A tensor without elements, which is no weight.

    Args:
        shape: tuple of ints.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape

    def shapes(self, shapes: Shapes) -> Shapes:
        return [self.shape]

    def read(self, tensors: Arrays, shapes: Shapes) -> Arrays:
        return []

    def write(self, weights: Arrays) -> Arrays:
        return [np.zeros(self.shape, "float32")]
