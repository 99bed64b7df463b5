"""Rows of random tokens whose segments are repeated, from which a language model learns to copy."""

from __future__ import annotations

import numpy as np

from keras_transformer.data.batch_stream import BatchStream
from keras_transformer.utils.labels import IGNORE_ID


def repeated_segment_batches(
    vocabulary_size: int,
    sequence_length: int,
    batch_size: int,
    steps_per_epoch: int,
    *,
    first_id: int = 0,
    segment_lengths: tuple[int, int] = (4, 12),
    seed: int = 0,
) -> BatchStream:
    """Batches of random tokens followed by segments of them, for learning to copy before learning a language.

    The first part of a row, a quarter to a half of it, is random; segments of it follow, from random positions. No token but
    those of a segment after its first can be predicted, and those only by finding the token in what came before and
    repeating what followed it: by an induction head. The labels of all other tokens are -100. A small model hardly learns to
    copy from little text; from these rows, it does in a few hundred steps.

    Args:
        vocabulary_size: int > `first_id`.
        sequence_length: int. T, at least 4 times the longest segment.
        batch_size: int >= 1. B.
        steps_per_epoch: int >= 1. The length of an epoch is a free choice.
        first_id: int >= 0. Smaller ids, as those of special tokens, do not occur.
        segment_lengths: two ints, 2 <= shortest <= longest.
        seed: int >= 0.

    Returns:
        A `BatchStream` of fixed shapes: {"token_ids": int32 `(B, T)`}, and labels, int32 `(B, T)`. There is no padding mask,
        because there is no padding: `tasks.LanguageModel` takes inputs without one.

    Raises:
        ValueError: an argument is out of its range.

    Example:

    >>> inputs, labels = repeated_segment_batches(100, 32, 1, 1, segment_lengths=(4, 8))[0]
    >>> row, copied = inputs["token_ids"][0], labels[0] >= 0
    >>> all(label in row[:16] for label in labels[0][copied])
    True

    Reference: Olsson et al., "In-context Learning and Induction Heads", arXiv 2209.11895, measure induction heads on random
    tokens that are repeated once as a whole. Here segments are repeated, several times, and models are trained on them.
    """
    shortest, longest = segment_lengths
    if not 2 <= shortest <= longest:
        raise ValueError(f"segment_lengths must be 2 <= shortest <= longest. Received: {segment_lengths}")
    for name, value, least in (
        ("vocabulary_size", vocabulary_size, first_id + 1),
        ("sequence_length", sequence_length, 4 * longest),
        ("batch_size", batch_size, 1),
        ("first_id", first_id, 0),
        ("seed", seed, 0),
    ):
        if value < least:
            raise ValueError(f"{name} must be at least {least}. Received: {value}")

    def make(epoch, step):
        rng = np.random.default_rng([seed, epoch, step])
        rows = [_row(rng, (first_id, vocabulary_size), sequence_length + 1, segment_lengths) for _ in range(batch_size)]
        tokens, copied = (np.stack(parts) for parts in zip(*rows, strict=True))
        labels = np.where(copied[:, 1:], tokens[:, 1:], IGNORE_ID).astype("int32")
        return {"token_ids": tokens[:, :-1]}, labels

    settings = (vocabulary_size, sequence_length, batch_size, steps_per_epoch, first_id, segment_lengths, seed)
    return BatchStream(make, steps_per_epoch, fingerprint=repr(settings), fixed_shapes=True)


def _row(rng, ids, length, segment_lengths):
    """Returns tokens `(length,)` and which of them continue a segment."""
    shortest, longest = segment_lengths
    count = int(rng.integers(length // 4, length // 2 + 1))
    parts, copied = [rng.integers(*ids, count)], [np.zeros(count, bool)]
    while count < length:
        start = rng.integers(0, len(parts[0]) - shortest + 1)
        parts.append(parts[0][start : start + rng.integers(shortest, longest + 1)])
        copied.append(np.arange(len(parts[-1])) > 0)
        count += len(parts[-1])
    return np.concatenate(parts)[:length].astype("int32"), np.concatenate(copied)[:length]
