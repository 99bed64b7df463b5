"""Sliding-window encoding of long texts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from keras_transformer.utils.types import ArrayLike


def encode_in_windows(
    encoder: Callable[[dict[str, np.ndarray]], ArrayLike],
    token_ids: ArrayLike,
    window: int = 512,
    overlap: int = 256,
    batch_size: int = 8,
) -> np.ndarray:
    """Encodes a text of any length in overlapping windows.

    The state of each token comes from the window in which it is closest to the middle, where it has the most context:
    half of `overlap` is dropped at either side of a window, except at both ends of the text.

    Args:
        encoder: function of {"token_ids": int32 `(B, window)`, "padding_mask": bool `(B, window)`} to `(B, window, D)`:
            `models.Encoder`, or a model of one output from `export.load`.
        token_ids: list or array of int, `(S,)`.
        window: int >= 1. Number of tokens per window.
        overlap: even int in [0, window). Number of tokens that consecutive windows share.
        batch_size: int >= 1. Number of windows per call of the encoder.

    Returns:
        float array `(S, D)`.

    Raises:
        ValueError: no tokens; `overlap` odd or not below `window`.

    Example:

    >>> import numpy as np
    >>> def positions_in_window(inputs):
    ...     return np.cumsum(inputs["padding_mask"], axis=1)[..., None] - 1.0
    >>> encode_in_windows(positions_in_window, range(8), window=4, overlap=2).ravel().tolist()
    [0.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 3.0]

    Reference: Bertsch et al., Unlimiformer, arXiv 2305.01625, section 2.2, with half of each window kept.
    """
    token_ids = np.asarray(token_ids, "int32")
    if not len(token_ids):
        raise ValueError("token_ids must not be empty.")
    if overlap % 2 or not 0 <= overlap < window:
        raise ValueError(f"overlap must be even and below window={window}. Received: {overlap}")
    starts = _starts(len(token_ids), window, overlap)
    states, read = np.empty((0, 0)), 0
    for begin in range(0, len(starts), batch_size):
        batch = starts[begin : begin + batch_size]
        positions = batch[:, None] + np.arange(window)
        mask = positions < len(token_ids)
        ids = np.where(mask, token_ids[np.minimum(positions, len(token_ids) - 1)], 0).astype("int32")
        encoded = np.asarray(encoder({"token_ids": ids, "padding_mask": mask}))
        if begin == 0:
            states = np.empty((len(token_ids), encoded.shape[-1]), encoded.dtype)
        for start, rows in zip(batch, encoded, strict=True):
            # From the middle of the overlap with the previous window.
            first = (start + read) // 2 if start else 0
            states[first : start + window] = rows[first - start : len(token_ids) - start]
            read = start + window
    return states


def _starts(length, window, overlap):
    """Starts of the windows; the last window ends with the text, unless the text is shorter than a window."""
    starts = np.arange(0, max(length - overlap, 1), window - overlap)
    return np.minimum(starts, max(length - window, 0))
