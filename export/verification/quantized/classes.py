"""Behavior of a quantized classifier: how the distributions over its classes differ from those of the float model."""

from __future__ import annotations

import numpy as np

from keras_transformer.export.data.limits import Limits
from keras_transformer.export.errors import QuantizationError
from keras_transformer.export.verification.quantized.predictions import TIE, log_softmax

# Fewer predictions say nothing of a share.
_FEWEST = 100
_LEAST = 1e-9


def is_distribution(name: str, values: np.ndarray) -> bool:
    """Whether an output is the logits or the probabilities of classes, by its name.

    Example:

    >>> is_distribution("start_logits", np.zeros((2, 7))), is_distribution("embedding", np.zeros((2, 7)))
    (True, False)
    """
    return (name.endswith("logits") or name == "probabilities") and values.ndim > 1 and values.size > 0


class ClassChanges:
    """Collects the change of the distributions of one format over all probes.

    Example:

    >>> changes = ClassChanges()
    >>> changes.add("logits", np.zeros((1, 2)), np.log([[0.5, 0.5]]))
    >>> changes.figures()
    {'divergence': 0.0, 'top_share': 1.0, 'predictions': 1}
    """

    def __init__(self) -> None:
        self._divergences: list[np.ndarray] = []
        self._agreements: list[np.ndarray] = []

    def add(self, name: str, got: np.ndarray, expected: np.ndarray) -> None:
        """Adds an output on one probe, if it is one of classes.

        Args:
            name: name of the output.
            got: array of the quantized file.
            expected: array of the float model, of the same shape.
        """
        if not is_distribution(name, expected):
            return
        # Integers of a sum of 1 have a sum near it.
        is_by_label = name == "probabilities" and not np.allclose(expected.sum(-1), 1, atol=1e-3)
        own, reference = (_log_probabilities(name, each, is_by_label) for each in (got, expected))
        kept = np.exp(reference) > 0
        terms = np.exp(reference) * np.where(kept, reference - np.where(kept, own, 0.0), 0.0)
        self._divergences.append(terms.sum(-1).reshape(-1))
        chosen = np.take_along_axis(reference, own.argmax(-1)[..., None], -1)[..., 0]
        self._agreements.append((chosen >= reference.max(-1) - TIE).reshape(-1))

    def figures(self) -> dict[str, float] | None:
        """Mean divergence in nats, and share of predictions whose most likely class stays; None without any."""
        if not self._divergences:
            return None
        divergences, agrees = np.concatenate(self._divergences), np.concatenate(self._agreements)
        return {
            "divergence": float(divergences.mean()),
            "top_share": float(agrees.mean()),
            "predictions": int(agrees.size),
        }


def check_classes(name: str, figures: dict[str, float], limits: Limits) -> None:
    """Refuses a quantized classifier that behaves differently.

    Args:
        name: what was quantized, for the error.
        figures: result of `ClassChanges.figures`.
        limits: `Limits` of its mode.

    Raises:
        QuantizationError: names the figure.
    """
    divergence, share = figures["divergence"], figures["top_share"]
    if not divergence <= limits.classes:
        raise QuantizationError(
            f"{name}: the distributions of classes diverge by {divergence:.4g} nats, at most {limits.classes:.4g}"
        )
    if figures["predictions"] >= _FEWEST and not share >= limits.top_share:
        raise QuantizationError(
            f"{name}: the most likely class stays in {share:.2%} of the predictions, at least {limits.top_share:.2%} must"
        )


def _log_probabilities(name: str, values: np.ndarray, is_by_label: bool) -> np.ndarray:
    """Log-probabilities `(..., C)`; those of one number for each label, as of a sigmoid, become two classes each."""
    values = np.asarray(values, "float64")
    if name != "probabilities":
        return log_softmax(values if values.shape[-1] > 1 else np.concatenate([values, np.zeros_like(values)], -1))
    if is_by_label:
        values = np.stack([values, 1 - values], axis=-1)
    return np.log(np.clip(values, _LEAST, 1.0))
