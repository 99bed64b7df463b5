"""Batches of sequences of similar length, under a budget of tokens."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_transformer.data.batch_stream import BatchStream
from keras_transformer.data.errors import SequenceDataError
from keras_transformer.data.sequences.ragged import Ragged
from keras_transformer.utils.labels import IGNORE_ID
from keras_transformer.utils.types import ArrayLike


def bucket_batches(
    inputs: Mapping[str, ArrayLike],
    labels: ArrayLike = None,
    *,
    tokens_per_batch: int = 4096,
    max_length: int | None = None,
    multiple: int = 8,
    growth: float = 1.125,
    shuffle: bool = True,
    seed: int = 0,
    fill: bool = True,
    padding_id: int = 0,
    ignore_id: int = IGNORE_ID,
) -> BatchStream:
    """Batches examples of similar length, padded to one of few lengths, with as many rows as a token budget allows.

    The length of an example is that of its longest sequence. Its bucket is that of the smallest padded length that is large
    enough: multiples of `multiple`, each at least `growth` times the one before. Batches of the bucket of length L have
    `tokens_per_batch // L` rows. In each epoch the examples of a bucket are shuffled and split into batches, and the batches
    of all buckets are shuffled. Batches depend on `seed`, epoch and step only; every example occurs once per epoch.

    Args:
        inputs: dict of name to sequences of token ids (lists, or a `Ragged`), or to an array `(examples, ...)`. For names
            that end in "token_ids" a mask is added: "source_padding_mask" for "source_token_ids".
        labels: sequences, or an array `(examples, ...)`, or None.
        tokens_per_batch: int >= 1. Maximum of rows x padded length of a batch. Default 4096.
        max_length: int, or None. Longer examples are dropped; `dropped` of the result is their number. Default None.
        multiple: int >= 1. Padded lengths are multiples of it. Default 8.
        growth: float >= 1. Larger values produce fewer padded lengths: fewer graphs to compile, but more padding.
            Default 1.125.
        shuffle: bool. False keeps the order within buckets, from short to long buckets. Default True.
        seed: int >= 0.
        fill: bool. Whether to fill the last batch of a bucket with empty rows (all padding, labels `ignore_id`), so that
            each bucket has one shape, which XLA compiles once. Default True.
        padding_id: int. Token id of padding. Other sequences are padded with 0.
        ignore_id: int. Label of padding.

    Returns:
        A `BatchStream` of `(inputs, labels)`, or of `inputs` without labels: int32 and bool `(rows, length)`.

    Raises:
        SequenceDataError: no examples; columns with different numbers of examples; an example larger than the budget.
        ValueError: an argument is out of its range.

    Example:

    >>> train = bucket_batches({"token_ids": [[5, 6, 7], [8], [9, 3]]}, [1, 0, 1], tokens_per_batch=8, multiple=4)
    >>> len(train)
    2
    >>> inputs, labels = train[0]
    >>> inputs["token_ids"].shape, inputs["padding_mask"].shape, labels.shape
    ((2, 4), (2, 4), (2,))

    Reference: Vaswani et al., arXiv 1706.03762, section 5.1 (token budget).
    """
    _check_options(tokens_per_batch, multiple, growth, seed)
    columns = _Columns(inputs, labels, padding_id, ignore_id)
    lengths = columns.lengths()
    kept = _kept(lengths, max_length)
    longest = kept[np.argmax(lengths[kept])]
    sizes = _padded_lengths(int(lengths[longest]), multiple, growth)
    if sizes[-1] > tokens_per_batch:
        raise SequenceDataError(
            f"Example {longest} has {lengths[longest]} tokens, padded to {sizes[-1]}: more than "
            f"tokens_per_batch={tokens_per_batch}. Set max_length to drop such examples."
        )
    schedule = _BatchSchedule(kept, lengths[kept], sizes, tokens_per_batch, seed if shuffle else None)

    def make(epoch, step):
        bucket, rows = schedule(epoch)[step]
        return columns.batch(rows, sizes[bucket], schedule.rows[bucket] - len(rows) if fill else 0)

    settings = (tokens_per_batch, multiple, growth, shuffle, seed, fill, padding_id, ignore_id)
    fingerprint = hashlib.sha256(repr(settings).encode() + kept.tobytes() + lengths.tobytes()).hexdigest()[:16]
    result = BatchStream(make, schedule.steps, fingerprint=fingerprint)
    result.dropped = len(lengths) - len(kept)
    result.padded_lengths = tuple(sizes)
    return result


def _check_options(tokens_per_batch: int, multiple: int, growth: float, seed: int) -> None:
    for name, value in (("tokens_per_batch", tokens_per_batch), ("multiple", multiple), ("growth", growth)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1. Received: {value}")
    if seed < 0:
        raise ValueError(f"seed must not be negative. Received: {seed}")


def _kept(lengths: np.ndarray, max_length: int | None) -> np.ndarray:
    """The indices of the examples that are not too long."""
    kept = np.arange(len(lengths)) if max_length is None else np.flatnonzero(lengths <= max_length)
    if not len(kept):
        limit = "" if max_length is None else f": none of {len(lengths)} is at most max_length={max_length} long"
        raise SequenceDataError(f"There are no examples{limit}.")
    return kept


def sequence_to_sequence(sources: ArrayLike, targets: ArrayLike) -> tuple[dict[str, Ragged], Ragged]:
    """Returns the inputs and labels of an encoder-decoder, for `bucket_batches`.

    The decoder reads a target without its last token and predicts it without its first.

    Args:
        sources: sequences of token ids.
        targets: sequences of token ids, each with its start and its end token.

    Returns:
        `({"source_token_ids", "target_token_ids"}, labels)`, each a `Ragged`.

    Example:

    >>> inputs, labels = sequence_to_sequence([[7, 8, 3]], [[2, 5, 6, 3]])
    >>> inputs["target_token_ids"][0].tolist(), labels[0].tolist()
    ([2, 5, 6], [5, 6, 3])
    """
    targets = Ragged.of(targets)
    return {"source_token_ids": Ragged.of(sources), "target_token_ids": targets.cut(last=1)}, targets.cut(first=1)


def next_token(sequences: ArrayLike) -> tuple[dict[str, Ragged], Ragged]:
    """Returns the inputs and labels of a decoder-only model, for `bucket_batches`.

    Args:
        sequences: sequences of token ids.

    Returns:
        `({"token_ids"}, labels)`, each a `Ragged`: the sequences without their last tokens, and without their first.

    Example:

    >>> inputs, labels = next_token([[2, 5, 6, 3]])
    >>> inputs["token_ids"][0].tolist(), labels[0].tolist()
    ([2, 5, 6], [5, 6, 3])
    """
    sequences = Ragged.of(sequences)
    return {"token_ids": sequences.cut(last=1)}, sequences.cut(first=1)


def _padded_lengths(longest, multiple, growth):
    """Returns the padded lengths in ascending order, up to the first that is at least `longest`."""
    sizes = [multiple]
    while sizes[-1] < longest:
        sizes.append(max(sizes[-1] + multiple, int(sizes[-1] * growth) // multiple * multiple))
    return sizes


class _BatchSchedule:
    """Assignment of examples to the batches of an epoch: a list of (bucket, rows)."""

    def __init__(
        self, examples: np.ndarray, lengths: np.ndarray, sizes: Sequence[int], tokens_per_batch: int, seed: int | None
    ) -> None:
        bucket = np.searchsorted(sizes, lengths)
        self.examples = [examples[bucket == index] for index in range(len(sizes))]
        self.rows = [tokens_per_batch // size for size in sizes]
        self.steps = sum(-(-len(some) // rows) for some, rows in zip(self.examples, self.rows, strict=True))
        self.seed = seed
        # The input pipeline reads one epoch after the other.
        self._cached = functools.lru_cache(maxsize=2)(self._of_epoch)

    def __call__(self, epoch: int) -> list[tuple[int, np.ndarray]]:
        return self._cached(0 if self.seed is None else epoch)

    def _of_epoch(self, epoch):
        random = None if self.seed is None else np.random.default_rng([self.seed, epoch])
        batches = []
        for bucket, (examples, rows) in enumerate(zip(self.examples, self.rows, strict=True)):
            order = examples if random is None else random.permutation(examples)
            batches += [(bucket, order[first : first + rows]) for first in range(0, len(order), rows)]
        if random is not None:
            batches = [batches[index] for index in random.permutation(len(batches))]
        return batches


class _Columns:
    """The inputs and labels of all examples."""

    def __init__(self, inputs: Mapping[str, ArrayLike], labels: ArrayLike, padding_id: int, ignore_id: int) -> None:
        self.inputs: dict[str, Any] = {name: _column(column, name) for name, column in inputs.items()}
        self.labels = None if labels is None else _column(labels, "labels")
        self.padding_id, self.ignore_id = padding_id, ignore_id
        self.all = {**self.inputs, **({} if labels is None else {"labels": self.labels})}
        counts = {name: len(column) for name, column in self.all.items()}
        if len(set(counts.values())) != 1:
            raise SequenceDataError(f"Columns must have equal numbers of examples. Received: {counts}")
        if not any(isinstance(column, Ragged) for column in self.inputs.values()):
            raise SequenceDataError(f"No input consists of sequences. Received: {sorted(inputs)}")

    def lengths(self) -> np.ndarray:
        return functools.reduce(
            np.maximum, [column.lengths for column in self.all.values() if isinstance(column, Ragged)]
        )

    def batch(
        self, rows: np.ndarray, length: int, empty: int
    ) -> dict[str, np.ndarray] | tuple[dict[str, np.ndarray], np.ndarray]:
        inputs = {}
        for name, column in self.inputs.items():
            is_tokens = name.endswith("token_ids")
            inputs[name] = _rows(column, rows, length, empty, self.padding_id if is_tokens else 0)
            if is_tokens:
                real = column.mask(rows, length)
                mask = np.pad(real, [(0, empty), (0, 0)])
                inputs[name.removesuffix("token_ids") + "padding_mask"] = mask
        if self.labels is None:
            return inputs
        return inputs, _rows(self.labels, rows, length, empty, self.ignore_id)


def _column(column, name):
    if isinstance(column, (Ragged, np.ndarray)):
        return column
    column = list(column)
    if column and not np.ndim(column[0]):
        return np.asarray(column)
    try:
        return Ragged.of(column)
    except SequenceDataError as error:
        raise SequenceDataError(f"{name}: {error}") from None


def _rows(column, rows, length, empty, padding):
    if isinstance(column, Ragged):
        part = column.padded(rows, length, padding)
    else:
        part = column[rows]
        part = part.astype("int32") if part.dtype == np.int64 else part
    return np.pad(part, [(0, empty)] + [(0, 0)] * (part.ndim - 1), constant_values=padding)
