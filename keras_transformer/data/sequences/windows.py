"""Windows of one long token sequence, for training and evaluating language models."""

from __future__ import annotations

import hashlib

import numpy as np

from keras_transformer.data.batch_stream import BatchStream
from keras_transformer.data.errors import SequenceDataError
from keras_transformer.utils.labels import IGNORE_ID
from keras_transformer.utils.types import ArrayLike


def language_model_batches(
    token_ids: ArrayLike, sequence_length: int, batch_size: int, steps_per_epoch: int, *, seed: int = 0
) -> BatchStream:
    """Batches of random windows of one long token sequence, labeled with the next tokens.

    Window starts are uniform, with replacement; batches depend on `seed`, epoch and step only.

    Args:
        token_ids: integers `(n,)`, n > `sequence_length`; a `numpy.memmap` of any integer type stays on disk.
        sequence_length: int >= 1. T.
        batch_size: int >= 1. B.
        steps_per_epoch: int >= 1. The length of an epoch is a free choice.
        seed: int >= 0.

    Returns:
        A `BatchStream` of fixed shapes: {"token_ids": int32 `(B, T)`}, and labels, int32 `(B, T)`. There is no padding mask,
        because there is no padding: `tasks.LanguageModel` takes inputs without one.

    Raises:
        SequenceDataError: too few tokens, or not integers `(n,)`.
        ValueError: an argument is out of its range.

    Example:

    >>> import numpy as np
    >>> inputs, labels = language_model_batches(np.arange(100), 3, 2, steps_per_epoch=10)[0]
    >>> (labels == inputs["token_ids"] + 1).all(), labels.shape
    (np.True_, (2, 3))
    """
    token_ids = _checked(token_ids, sequence_length, batch_size, seed)
    last = len(token_ids) - sequence_length
    window = np.arange(sequence_length)

    def make(epoch, step):
        first = np.random.default_rng([seed, epoch, step]).integers(0, last, batch_size)
        indices = first[:, None] + window
        return _batch(token_ids[indices], token_ids[indices + 1])

    return _stream(make, token_ids, (sequence_length, batch_size, steps_per_epoch, seed), steps_per_epoch)


def evaluation_batches(
    token_ids: ArrayLike, sequence_length: int, batch_size: int, *, ignore_id: int = IGNORE_ID
) -> BatchStream:
    """Batches of consecutive windows of one long token sequence: every token but the first is a label once.

    Args:
        token_ids: integers `(n,)`, n >= 2; a `numpy.memmap` stays on disk.
        sequence_length: int >= 1. T.
        batch_size: int >= 1. B.
        ignore_id: int. Label of the padding that fills the last batch.

    Returns:
        A `BatchStream`, as from `language_model_batches`, with the "padding_mask", bool `(B, T)`; its `epoch()` is one pass.

    Raises:
        SequenceDataError: too few tokens, or not integers `(n,)`.
        ValueError: an argument is out of its range.

    Example:

    >>> import numpy as np
    >>> inputs, labels = evaluation_batches(np.arange(6), 3, 2)[0]
    >>> inputs["token_ids"].tolist(), labels.tolist()
    ([[0, 1, 2], [3, 4, 0]], [[1, 2, 3], [4, 5, -100]])
    """
    token_ids = _checked(token_ids, 1, batch_size, 0)
    if sequence_length < 1:
        raise ValueError(f"sequence_length must be at least 1. Received: {sequence_length}")
    count = len(token_ids) - 1
    steps = -(-count // (sequence_length * batch_size))
    window = np.arange(batch_size * sequence_length).reshape(batch_size, sequence_length)

    def make(_, step):
        indices = step * window.size + window
        real = indices < count
        indices = np.minimum(indices, count - 1)
        inputs, labels = _batch(
            np.where(real, token_ids[indices], 0), np.where(real, token_ids[indices + 1], ignore_id)
        )
        return inputs | {"padding_mask": real}, labels

    return _stream(make, token_ids, (sequence_length, batch_size, ignore_id), steps)


def _batch(token_ids, labels):
    return {"token_ids": token_ids.astype("int32")}, labels.astype("int32")


def _stream(make, token_ids, settings, steps):
    # Hashes both ends of the tokens only: the whole may be larger than the memory.
    ends = np.concatenate([token_ids[:1000], token_ids[-1000:]]).astype("int64")
    fingerprint = hashlib.sha256(repr((*settings, len(token_ids))).encode() + ends.tobytes()).hexdigest()[:16]
    return BatchStream(make, steps, fingerprint=fingerprint, fixed_shapes=True)


def _checked(token_ids, sequence_length, batch_size, seed):
    for name, value, least in (
        ("sequence_length", sequence_length, 1),
        ("batch_size", batch_size, 1),
        ("seed", seed, 0),
    ):
        if value < least:
            raise ValueError(f"{name} must be at least {least}. Received: {value}")
    token_ids = token_ids if isinstance(token_ids, np.ndarray) else np.asarray(token_ids)
    if token_ids.ndim != 1 or not np.issubdtype(token_ids.dtype, np.integer):
        raise SequenceDataError(f"Expected integers (n,). Received: {token_ids.dtype}, shape {token_ids.shape}")
    if len(token_ids) <= sequence_length:
        raise SequenceDataError(
            f"{len(token_ids)} tokens are too few: a window and its labels need {sequence_length + 1}."
        )
    return token_ids
