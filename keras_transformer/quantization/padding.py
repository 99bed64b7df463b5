"""Which positions of a tensor are padding, by the masks of a model."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

_TOKENS_MASK = "padding_mask"


def input_masks(batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray | None]:
    """The masks of the inputs of a model: "source_padding_mask" is that of all "source_..." with its shape.

    Returns:
        dict of name of an input to a bool array `(B, T)`, True at tokens, or None.

    Example:

    >>> batch = {"token_ids": np.ones((1, 2)), "padding_mask": np.array([[True, False]]), "features": np.ones((1, 5, 3))}
    >>> {name: None if mask is None else mask.tolist() for name, mask in input_masks(batch).items()}
    {'token_ids': [[True, False]], 'padding_mask': None, 'features': None}
    """
    masks = {name[: -len(_TOKENS_MASK)]: batch[name] for name in batch if name.endswith(_TOKENS_MASK)}
    found: dict[str, np.ndarray | None] = {}
    for name, array in batch.items():
        prefixes = [] if name.endswith(_TOKENS_MASK) else [each for each in masks if name.startswith(each)]
        found[name] = mask_of(array, [masks[each] for each in sorted(prefixes, key=len, reverse=True)])
    return found


def mask_of(x: np.ndarray, masks: list[np.ndarray | None]) -> np.ndarray | None:
    """The first mask `(B, T)` that fits a tensor `(B, T, ...)`, or None."""
    for mask in masks:
        if mask is not None and tuple(x.shape[: len(mask.shape)]) == tuple(mask.shape):
            return np.asarray(mask, bool)
    return None


def valid(x: np.ndarray, width: int, masks: list[np.ndarray | None]) -> np.ndarray:
    """The vectors `(n, width)` of a tensor that are no padding.

    Example:

    >>> valid(np.arange(8.0).reshape(1, 2, 4), 4, [np.array([[False, True]])]).tolist()
    [[4.0, 5.0, 6.0, 7.0]]
    """
    mask = mask_of(x, masks)
    rows = x.reshape(-1, width)
    if mask is None:  # All positions in one axis, as a mixture of experts has them.
        flat = [each.reshape(-1) for each in masks if each is not None and each.size == len(x) and x.ndim == 2]
        return rows[flat[0].astype(bool)] if flat else rows
    each = len(rows) // mask.size
    return rows[np.repeat(mask.reshape(-1), each)]
