"""Padding of token id sequences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from keras_transformer.text.errors import SpecialTokenError, TextError


def pad_batch(
    rows: Sequence[Sequence[int]],
    pad_id: int | None,
    padding: str | int = "longest",
    offsets: Sequence[Sequence[tuple[int, int]]] | None = None,
) -> dict[str, np.ndarray]:
    """Pads sequences of token ids on the right.

    Args:
        rows: list of lists of int.
        pad_id: int.
        padding: "longest", or the int length of all rows.
        offsets: list of `(begin, stop)` for each row, or None.

    Returns:
        dict of "token_ids" int32 `(B, T)`, "padding_mask" bool `(B, T)`, and "offsets" int32 `(B, T, 2)` if given.

    Raises:
        SpecialTokenError: `pad_id` is None, the id of a tokenizer without a pad token.
        TextError: `padding` is invalid, or a row is longer.

    Example:

    >>> pad_batch([[5, 6], [7]], 0)["token_ids"]
    array([[5, 6],
           [7, 0]], dtype=int32)
    """
    if pad_id is None:
        raise SpecialTokenError("The tokenizer has no pad token, which a batch needs.")
    lengths = np.array([len(row) for row in rows], "int64")
    length = int(lengths.max(initial=0))
    if padding != "longest":
        if isinstance(padding, (bool, str)) or not isinstance(padding, (int, np.integer)) or padding < 1:
            raise TextError(f'padding must be "longest" or a positive int. Received: {padding!r}')
        if length > padding:
            raise TextError(
                f"Text {int(lengths.argmax())} has {length} tokens, more than padding={padding}. "
                "Pass max_length to truncate longer texts."
            )
        length = int(padding)
    mask = np.arange(length) < lengths[:, None]
    token_ids = np.full((len(rows), length), pad_id, "int32")
    token_ids[mask] = [index for row in rows for index in row]
    batch = {"token_ids": token_ids, "padding_mask": mask}
    if offsets is not None:
        batch["offsets"] = np.zeros((len(rows), length, 2), "int32")
        batch["offsets"][mask] = np.array([pair for row in offsets for pair in row], "int32").reshape(-1, 2)
    return batch
