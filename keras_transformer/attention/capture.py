"""Captures tensors that layers compute inside a model, as attention scores."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterable, Iterator

import keras

from keras_transformer.utils.types import Tensor

# Layer id -> recorded tensor during a capture. A context variable, so that threads do not share it.
_captured: contextvars.ContextVar[dict[int, Tensor | None] | None] = contextvars.ContextVar(
    "captured_attention_scores", default=None
)


@contextlib.contextmanager
def capture(layers: Iterable[keras.layers.Layer]) -> Iterator[dict[int, Tensor | None]]:
    """Captures the tensors that `layers` record in the `with` block: attention layers record scores `(B, N, T, S)`.

    Yields:
        dict from `id(layer)` to tensors, filled as the layers are called.
    """
    scores: dict[int, Tensor | None] = dict.fromkeys(map(id, layers))
    token = _captured.set(scores)
    try:
        yield scores
    finally:
        _captured.reset(token)


def is_captured(layer: keras.layers.Layer) -> bool:
    """Whether `layer` is captured."""
    return id(layer) in (_captured.get() or ())


def is_capturing() -> bool:
    """Whether any layer is captured."""
    return _captured.get() is not None


def record(layer: keras.layers.Layer, tensor: Tensor | None) -> None:
    """Records a tensor of a captured layer."""
    captured = _captured.get()
    if captured is not None:
        captured[id(layer)] = tensor
