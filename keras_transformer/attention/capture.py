"""Handing the scores of chosen attention layers out of a model, whatever blocks they are nested in."""

import contextlib
import contextvars

# Layer id -> scores, while a capture runs. A context variable: other threads and models see nothing of it.
_captured = contextvars.ContextVar("captured_attention_scores", default=None)


@contextlib.contextmanager
def capture(layers):
    """Collects the scores of `layers` while the block runs.

    Yields:
        dict from `id(layer)` to scores `(B, N, T, S)`, filled as the layers are called.
    """
    scores = dict.fromkeys(map(id, layers))
    token = _captured.set(scores)
    try:
        yield scores
    finally:
        _captured.reset(token)


def wants(layer):
    """Whether a running capture asks for the scores of `layer`."""
    return id(layer) in (_captured.get() or ())


def record(layer, scores):
    """Hands the scores of `layer` to the running capture."""
    _captured.get()[id(layer)] = scores
