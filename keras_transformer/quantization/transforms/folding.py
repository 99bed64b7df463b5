"""Factors of channels that move from the layer that computes a tensor into the weights that read it.

Which layers belong together is found by trying: factors that are powers of two change nothing by rounding, so that outputs
which stay as they are prove that the rewriting is exact.
"""

from __future__ import annotations

from typing import NamedTuple

import keras
import numpy as np

from keras_transformer.backend import keras_private
from keras_transformer.layers.norms import NORMS, ZeroCenteredRMSNormalization
from keras_transformer.quantization.kernels import Kernel, kernels_of
from keras_transformer.quantization.observation.calibration import Batch
from keras_transformer.quantization.observation.recording import outputs_of, recorded
from keras_transformer.utils.types import Tensor

_NORMS = (keras.layers.LayerNormalization, keras.layers.RMSNormalization, *NORMS.values())
# How many layers that were called before a weight are tried, beginning with the last.
_CANDIDATES = 3
# Of the largest output: what reductions in another order may change.
_TOLERANCE = 1e-5


class Fold(NamedTuple):
    """A layer whose channels can be divided by factors, and the weights that are multiplied by them instead.

    Attributes:
        producer: a norm, or a layer with a kernel.
        readers: list of `Kernel`: all weights that read the tensor.
        channels: int `(K,)`: the channel of the producer that each input of the readers comes from. Heads that share a value
            share its channels.
    """

    producer: keras.layers.Layer
    readers: list[Kernel]
    channels: np.ndarray

    @property
    def width(self) -> int:
        """The number of channels of the producer."""
        return int(self.channels.max()) + 1

    def of_channels(self, magnitudes: np.ndarray) -> np.ndarray:
        """The largest magnitude for each channel, of magnitudes `(K,)` of the inputs."""
        found = np.zeros(self.width)
        np.maximum.at(found, self.channels, magnitudes)
        return found

    def apply(self, factors: np.ndarray) -> None:
        """Divides the channels of the producer by factors `(channels,)`, and multiplies the inputs of the readers."""
        factors = np.asarray(factors, "float32")
        if isinstance(self.producer, _NORMS):
            _divide_norm(self.producer, factors)
        else:
            kernel = Kernel.of(self.producer)
            kernel.assign(kernel.rows() / factors[:, None])
            bias = self.producer.bias
            if bias is not None:
                values = keras.ops.convert_to_numpy(bias)
                bias.assign((values.reshape(-1) / factors).reshape(values.shape))
        for kernel in self.readers:
            kernel.assign(kernel.rows() * factors[self.channels])


def _divide_norm(norm, factors):
    if isinstance(norm, ZeroCenteredRMSNormalization):
        norm.scale.assign((1 + keras.ops.convert_to_numpy(norm.scale)) / factors - 1)
        return
    for name in ("gamma", "scale", "beta"):
        variable = getattr(norm, name, None)
        if variable is not None and not isinstance(variable, bool):  # As `scale` of LayerNormalization is.
            variable.assign(keras.ops.convert_to_numpy(variable) / factors)


def find_folds(model: keras.Model, batch: Batch) -> list[Fold]:
    """The exact folds of a model: norms before products; values before the output of attention; gated hidden layers.

    Args:
        model: Functional `keras.Model`.
        batch: dict of arrays: its first example is run.

    Example:

    >>> from keras_transformer.quantization.observation.calibration import as_batches
    >>> norm = keras.layers.LayerNormalization(name="norm")
    >>> model = keras.Sequential([keras.Input((64,)), norm, keras.layers.Dense(64, "gelu")])
    >>> [fold.producer.name for fold in find_folds(model, as_batches(model, np.random.normal(size=(1, 64)))[0])]
    ['norm']
    """
    run = _Test(model, {name: array[:1] for name, array in batch.items()})
    pending = _candidates(model, run)
    found: list[Fold] = []
    while pending:
        exact = run.exact([folds[0] for folds in pending])
        found += exact
        done = {id(fold) for fold in exact}
        pending = [folds[1:] for folds in pending if id(folds[0]) not in done and len(folds) > 1]
    return found


class _Test:
    """Whether outputs stay as they are."""

    def __init__(self, model: keras.Model, batch: Batch) -> None:
        self._model, self._batch = model, batch
        self._random = np.random.default_rng(0)
        self._expected = self.outputs()

    def outputs(self) -> list[np.ndarray]:
        return outputs_of(self._model, self._batch)

    def exact(self, folds: list[Fold]) -> list[Fold]:
        """Those of some folds that change nothing: all of them, or those of each half."""
        if not folds:
            return []
        factors = [2.0 ** self._random.integers(-1, 2, fold.width) for fold in folds]
        for fold, factor in zip(folds, factors, strict=True):
            fold.apply(factor)
        outputs = self.outputs()
        for fold, factor in zip(folds, factors, strict=True):
            fold.apply(1 / factor)
        pairs = zip(outputs, self._expected, strict=True)
        if all(np.abs(found - expected).max() <= _TOLERANCE * np.abs(expected).max() for found, expected in pairs):
            return list(folds)
        middle = len(folds) // 2
        return self.exact(folds[:middle]) + self.exact(folds[middle:]) if middle else []


def _candidates(model, run) -> list[list[Fold]]:
    """For each tensor that weights read, the folds to try."""
    kernels = {id(kernel.layer): kernel for kernel in kernels_of(model) if not kernel.is_table}
    norms = [layer for layer in keras_private.flatten_layers(model) if isinstance(layer, _NORMS)]
    calls: list[tuple[keras.layers.Layer, Tensor, Tensor]] = []
    with recorded([*norms, *(kernel.layer for kernel in kernels.values())], lambda *call: calls.append(call)):
        run.outputs()
    readers: dict[int, list[int]] = {}
    for index, (layer, x, _) in enumerate(calls):
        if id(layer) in kernels:
            readers.setdefault(id(x), []).append(index)
    found, seen = [], set()
    for indices in readers.values():
        group = list({id(calls[index][0]): kernels[id(calls[index][0])] for index in indices}.values())
        key = tuple(kernel.path for kernel in group)
        if key not in seen:
            seen.add(key)
            folds = list(_folds(calls, indices[0], group))
            found += [folds[:_CANDIDATES]] if folds else []
    return found


def _folds(calls, index, group):
    """The folds of a tensor: with the norm that it is the output of, or with each layer that was called before."""
    x, before = calls[index][1], calls[:index][::-1]
    for layer, _, outputs in sorted(before, key=lambda call: call[2] is not x):
        channels = _channels(layer, outputs, group[0])
        if channels is not None and not any(layer is kernel.layer for kernel in group):
            yield Fold(layer, group, channels)


def _channels(layer, outputs, reader):
    """The channel of a layer's output that each input of a reader comes from, or None where their numbers do not fit."""
    sizes = tuple(outputs.shape)
    shape = sizes[2:] or sizes[1:]
    if np.prod(shape) == reader.width:
        return np.arange(reader.width)
    heads = tuple(reader.variable.shape[: reader.contracted])
    if len(shape) == len(heads) == 2 and shape[1] == heads[1] and heads[0] % shape[0] == 0:
        shared = np.arange(shape[0]).repeat(heads[0] // shape[0])
        return (shared[:, None] * shape[1] + np.arange(shape[1])).reshape(-1)
    return None


def geometric(factors: np.ndarray) -> np.ndarray:
    """Positive factors divided by the geometric mean of the largest and the smallest.

    Example:

    >>> geometric(np.array([1.0, 16.0])).tolist()
    [0.25, 4.0]
    """
    return factors / np.sqrt(factors.max() * factors.min())
