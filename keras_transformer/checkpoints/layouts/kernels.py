"""Layouts of kernels of convolutions and of positions."""

from __future__ import annotations

import math

import numpy as np

from keras_transformer.checkpoints.layouts.layout import Arrays, Layout, Shapes


class PointConvolution(Layout):
    """A dense kernel, `(inputs, outputs)`, as that of a 1 x 1 convolution of torch, `(outputs, inputs, 1, 1)`.

    Args:
        rank: int. The number of axes that the convolution runs over: 1 for `(outputs, inputs, 1)`.
    """

    def __init__(self, rank: int = 2) -> None:
        self.ones = (1,) * rank

    def shapes(self, shapes: Shapes) -> Shapes:
        return [(*shape[::-1], *self.ones) for shape in shapes]

    def read(self, tensors: Arrays, shapes: Shapes) -> Arrays:
        return [tensor.reshape(tensor.shape[:2]).T for tensor in tensors]

    def write(self, weights: Arrays) -> Arrays:
        return [weight.T.reshape(*weight.shape[::-1], *self.ones) for weight in weights]


class PatchConvolution(Layout):
    """A dense kernel of whole patches, `(inputs, outputs)`, as that of a convolution of torch, `(outputs, *patch)`.

    Args:
        patch: tuple of ints. The shape of a patch, channels first: `(channels, frames, rows, columns)`.
    """

    def __init__(self, patch: tuple[int, ...]) -> None:
        self.patch = patch

    def shapes(self, shapes: Shapes) -> Shapes:
        return [(shape[1], *self.patch) for shape in shapes]

    def read(self, tensors: Arrays, shapes: Shapes) -> Arrays:
        return [tensor.reshape(len(tensor), -1).T for tensor in tensors]

    def write(self, weights: Arrays) -> Arrays:
        return [weight.T.reshape(-1, *self.patch) for weight in weights]


class Sinusoidal(Layout):
    """A kernel `(D, N, H)` whose inputs are sines, then cosines, as a matrix `(N · H, D)` of sines and cosines in turn."""

    def shapes(self, shapes: Shapes) -> Shapes:
        return [(math.prod(shape[1:]), shape[0]) for shape in shapes]

    def read(self, tensors: Arrays, shapes: Shapes) -> Arrays:
        rows = [np.concatenate([tensor.T[::2], tensor.T[1::2]]) for tensor in tensors]
        return [each.reshape(shape) for each, shape in zip(rows, shapes, strict=True)]

    def write(self, weights: Arrays) -> Arrays:
        halves = [np.split(weight.reshape(weight.shape[0], -1), 2) for weight in weights]
        return [np.stack(pair, axis=1).reshape(-1, pair[0].shape[1]).T for pair in halves]


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
        self._read: Arrays | None = None

    def shapes(self, shapes: Shapes) -> Shapes:
        (whole,) = self.layout.shapes(shapes)
        norms = [1] * len(whole)
        norms[self.axis] = whole[self.axis]
        return [tuple(norms), whole]

    def read(self, tensors: Arrays, shapes: Shapes) -> Arrays:
        self._read = tensors
        return self.layout.read([self._product(*tensors)], shapes)

    def write(self, weights: Arrays) -> Arrays:
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
