"""Predictions of a language model, and how those of the quantized one differ from the float model's on the same tokens."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np

from keras_transformer.export.data.limits import Behavior, Limits
from keras_transformer.export.errors import QuantizationError

# Tokens of each distribution that are kept; the others count as one.
_KEPT = 64
# A token counts as the most likely one if the float model thinks it is nearly that, in nats: rounding decides ties.
TIE = 0.1
_LEAST = 1e-9


@dataclasses.dataclass(frozen=True)
class Predictions:
    """The distributions of a float model at each position of rows of tokens, without what is very unlikely.

    Args:
        token_ids: int32 array `(B, T)`.
        top_ids: int32 array `(B, P, K)`: the most likely tokens at the last P positions, the most likely one first.
        log_probs: float32 array `(B, P, K)`: their log-probabilities.
        next_log_probs: float32 array `(B, P)`: log-probabilities of the tokens that follow.
    """

    token_ids: np.ndarray
    top_ids: np.ndarray
    log_probs: np.ndarray
    next_log_probs: np.ndarray

    @classmethod
    def of(cls, token_ids: np.ndarray, parts: Iterable[np.ndarray]) -> Predictions:
        """Predictions from logits.

        Args:
            token_ids: int32 array `(B, T)`.
            parts: arrays `(b, P, V)` of the rows in order: logits that predict the last P tokens of each row.
        """
        found: list[tuple[np.ndarray, ...]] = []
        row = 0
        for logits in parts:
            log_probs = log_softmax(logits)
            count, positions, size = log_probs.shape
            kept = min(_KEPT, size)
            top = np.argpartition(-log_probs, kept - 1, axis=-1)[..., :kept]
            order = np.argsort(-np.take_along_axis(log_probs, top, -1), axis=-1, kind="stable")
            top = np.take_along_axis(top, order, -1)
            followers = token_ids[row : row + count, -positions:, None]
            row += count
            values = (np.take_along_axis(log_probs, each, -1) for each in (top, followers))
            found.append((top.astype("int32"), *(each.astype("float32") for each in values)))
        top_ids, log_probs, followers = (np.concatenate(each) for each in zip(*found, strict=True))
        return cls(token_ids, top_ids, log_probs, followers[..., 0])

    def compare(self, parts: Iterable[np.ndarray], singles: int = 0) -> Behavior:
        """The behavior of a quantized model.

        Args:
            parts: as in `of`: the quantized model's logits for the same tokens.
            singles: int: how many of the last positions were read one token at a time.

        Returns:
            `Behavior`; a logit that is not finite makes its figures NaN.
        """
        losses: list[np.ndarray] = []
        divergences: list[np.ndarray] = []
        agreements: list[np.ndarray] = []
        row = 0
        for logits in parts:
            rows = slice(row, row + len(logits))
            row += len(logits)
            log_probs = log_softmax(logits)
            own = np.take_along_axis(log_probs, self.top_ids[rows], -1)
            divergences.append(_divergence(self.log_probs[rows].astype("float64"), own))
            followers = self.token_ids[rows, -logits.shape[1] :, None]
            losses.append(-np.take_along_axis(log_probs, followers, -1)[..., 0])
            agreements.append(self._agrees(rows, log_probs))
        agrees = np.concatenate(agreements)
        loss = float(np.mean(np.concatenate(losses)) + np.mean(self.next_log_probs.astype("float64")))
        return Behavior(
            perplexity=float(np.exp(min(loss, 50.0))) if np.isfinite(loss) else float("nan"),
            divergence=float(np.mean(np.concatenate(divergences))),
            top_share=float(np.mean(agrees)),
            greedy_share=float(np.mean(agrees[:, -singles:] if singles else agrees)),
            tokens=int(agrees.size),
        )

    def _agrees(self, rows: slice, log_probs: np.ndarray) -> np.ndarray:
        """Where the most likely token is the float model's, or one that is nearly as likely there."""
        chosen = log_probs.argmax(-1)[..., None]
        nearly = self.log_probs[rows] >= self.log_probs[rows, :, :1] - TIE
        is_all = nearly.all(-1)  # A flat distribution: more tokens than are kept are nearly as likely.
        return ((self.top_ids[rows] == chosen) & nearly).any(-1) | is_all


def check_behavior(name: str, behavior: Behavior, limits: Limits) -> None:
    """Refuses a quantized model that behaves differently.

    Args:
        name: what was quantized, for the error.
        behavior: `Behavior`.
        limits: `Limits` of its mode.

    Raises:
        QuantizationError: names the figure.
    """
    shown = (
        ("perplexity", behavior.perplexity, limits.perplexity, "times the float model's, at most {:.4g}"),
        ("divergence", behavior.divergence, limits.divergence, "nats for each token, at most {:.4g}"),
    )
    for label, value, limit, unit in shown:
        if not value <= limit:
            raise QuantizationError(f"{name}: {label} is {value:.4g} {unit.format(limit)}")
    shares = (
        ("all positions", behavior.top_share, limits.top_share),
        ("positions that are read singly", behavior.greedy_share, limits.greedy_share),
    )
    for label, value, limit in shares:
        if not value >= limit:
            raise QuantizationError(
                f"{name}: the most likely token stays at {value:.2%} of {label}, at least {limit:.2%} must"
            )


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Log-probabilities of logits along the last axis, in float64.

    Example:

    >>> np.exp(log_softmax(np.log([[1.0, 3.0]]))).round(6).tolist()
    [[0.25, 0.75]]
    """
    logits = np.asarray(logits, "float64")
    logits = logits - logits.max(axis=-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def _divergence(reference: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Divergence over the tokens that are kept, and all others as one."""
    kept = (np.exp(reference) * (reference - own)).sum(-1)
    rest = np.maximum(1 - np.exp(reference).sum(-1), 0.0)
    others = np.maximum(1 - np.exp(own).sum(-1), _LEAST)
    return kept + np.where(rest > _LEAST, rest * (np.log(np.maximum(rest, _LEAST)) - np.log(others)), 0.0)
