"""Handing what chosen layers compute inside out of a model, as attention its scores, whatever blocks they are nested in."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterable

import keras

from keras_transformer.utils.types import Tensor

# Layer id -> what it records, while a capture runs. A context variable: other threads and models see nothing of it.
_captured = contextvars.ContextVar("captured_attention_scores", default=None)


@contextlib.contextmanager
def capture(layers: Iterable[keras.layers.Layer]):
    """Collects what `layers` record while the block runs: attention its scores `(B, N, T, S)`.

    Yields:
        dict from `id(layer)` to tensors, filled as the layers are called.
    """
    scores = dict.fromkeys(map(id, layers))
    token = _captured.set(scores)
    try:
        yield scores
    finally:
        _captured.reset(token)


def is_captured(layer: keras.layers.Layer):
    """Whether a running capture asks for what `layer` computes."""
    return id(layer) in (_captured.get() or ())


def record(layer: keras.layers.Layer, tensor: Tensor):
    """Hands a tensor of `layer` to the running capture."""
    _captured.get()[id(layer)] = tensor
