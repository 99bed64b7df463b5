"""Batches of sequences of about the same length, with about the same number of tokens in each."""

import functools
import hashlib

import numpy as np

from keras_transformer.data.batch_stream import BatchStream
from keras_transformer.data.errors import SequenceDataError
from keras_transformer.data.sequences.ragged import Ragged
from keras_transformer.utils.labels import IGNORE_ID


def bucket_batches(
    inputs,
    labels=None,
    *,
    tokens_per_batch=4096,
    max_length=None,
    multiple=8,
    growth=1.125,
    shuffle=True,
    seed=0,
    fill=True,
    padding_id=0,
    ignore_id=IGNORE_ID,
):
    """Batches of examples of similar length, as many rows as fit a budget of tokens, padded to one of few lengths.

    An example's length is that of its longest sequence. It falls into the bucket of the first padded length that holds it:
    multiples of `multiple`, each at least `growth` times the last. A bucket of length L has `tokens_per_batch // L` rows a
    batch. In each epoch the examples of a bucket are shuffled, cut into batches, and the batches of all buckets shuffled.
    All is decided by `seed`, epoch and step, and every example is met once an epoch.

    Args:
        inputs: dict of name to sequences of token ids (lists, or a `Ragged`), or to an array `(examples, ...)`. A name that
            ends in "token_ids" brings its mask: "source_token_ids" gives "source_padding_mask" too.
        labels: sequences, or an array `(examples, ...)`, or None.
        tokens_per_batch: int >= 1. The most rows x padded length of a batch. Defaults to 4096.
        max_length: int, or None. Longer examples are left out; `dropped` of the result says how many. Defaults to None.
        multiple: int >= 1. Padded lengths are multiples of it. Defaults to 8.
        growth: float >= 1. Fewer, coarser lengths the larger it is: fewer graphs to compile, more padding.
        shuffle: bool. False keeps the order within a bucket, and goes from short buckets to long.
        seed: int >= 0.
        fill: bool. Whether the last batch of a bucket is filled up with empty rows (all padding, labels `ignore_id`), so
            that there is one shape a bucket, which XLA compiles once. Defaults to True.
        padding_id: int. In the place of missing tokens. Other sequences are padded with 0.
        ignore_id: int. The label in the place of missing tokens.

    Returns:
        A `BatchStream` of `(inputs, labels)`, or of `inputs` where there are no labels: int32 and bool `(rows, length)`.

    Raises:
        SequenceDataError: no examples; columns of different numbers of examples; an example larger than the budget.
        ValueError: an argument is out of its range.

    Example:

    >>> train = bucket_batches({"token_ids": [[5, 6, 7], [8], [9, 3]]}, [1, 0, 1], tokens_per_batch=8, multiple=4)
    >>> len(train)
    2
    >>> inputs, labels = train[0]
    >>> inputs["token_ids"].shape, inputs["padding_mask"].shape, labels.shape
    ((2, 4), (2, 4), (2,))

    Reference: the token budget of Vaswani et al., arXiv 1706.03762, section 5.1.
    """
    for name, value in (("tokens_per_batch", tokens_per_batch), ("multiple", multiple), ("growth", growth)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1. Received: {value}")
    if seed < 0:
        raise ValueError(f"seed must not be negative. Received: {seed}")
    columns = _Columns(inputs, labels, padding_id, ignore_id)
    lengths = columns.lengths()
    kept = np.arange(len(lengths)) if max_length is None else np.flatnonzero(lengths <= max_length)
    if not len(kept):
        limit = "" if max_length is None else f": none of {len(lengths)} is at most max_length={max_length} long"
        raise SequenceDataError(f"There are no examples{limit}.")
    longest = kept[np.argmax(lengths[kept])]
    sizes = _padded_lengths(int(lengths[longest]), multiple, growth)
    if sizes[-1] > tokens_per_batch:
        raise SequenceDataError(
            f"Example {longest} has {lengths[longest]} tokens, padded to {sizes[-1]}: more than "
            f"tokens_per_batch={tokens_per_batch}. Set max_length to leave such examples out."
        )
    plan = _Plan(kept, lengths[kept], sizes, tokens_per_batch, seed if shuffle else None)

    def make(epoch, step):
        bucket, rows = plan(epoch)[step]
        return columns.batch(rows, sizes[bucket], plan.rows[bucket] - len(rows) if fill else 0)

    settings = (tokens_per_batch, multiple, growth, shuffle, seed, fill, padding_id, ignore_id)
    fingerprint = hashlib.sha256(repr(settings).encode() + kept.tobytes() + lengths.tobytes()).hexdigest()[:16]
    result = BatchStream(make, plan.steps, fingerprint=fingerprint)
    result.dropped = len(lengths) - len(kept)
    result.padded_lengths = tuple(sizes)
    return result


def sequence_to_sequence(sources, targets):
    """What an encoder-decoder is trained on: `inputs` and `labels` for `bucket_batches`.

    The decoder reads a target without its last token, and is to say it without its first.

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


def next_token(sequences):
    """What a decoder alone is trained on: `inputs` and `labels` for `bucket_batches`.

    Args:
        sequences: sequences of token ids.

    Returns:
        `({"token_ids"}, labels)`, each a `Ragged`: every sequence without its last token, and without its first.

    Example:

    >>> inputs, labels = next_token([[2, 5, 6, 3]])
    >>> inputs["token_ids"][0].tolist(), labels[0].tolist()
    ([2, 5, 6], [5, 6, 3])
    """
    sequences = Ragged.of(sequences)
    return {"token_ids": sequences.cut(last=1)}, sequences.cut(first=1)


def _padded_lengths(longest, multiple, growth):
    """The padded lengths, rising, the last of which holds `longest`."""
    sizes = [multiple]
    while sizes[-1] < longest:
        sizes.append(max(sizes[-1] + multiple, int(sizes[-1] * growth) // multiple * multiple))
    return sizes


class _Plan:
    """Which examples stand together in the batches of an epoch: a list of (bucket, rows)."""

    def __init__(self, examples, lengths, sizes, tokens_per_batch, seed):
        bucket = np.searchsorted(sizes, lengths)
        self.examples = [examples[bucket == index] for index in range(len(sizes))]
        self.rows = [tokens_per_batch // size for size in sizes]
        self.steps = sum(-(-len(some) // rows) for some, rows in zip(self.examples, self.rows, strict=True))
        self.seed = seed
        # The pipeline asks for one epoch, then for the next.
        self._cached = functools.lru_cache(maxsize=2)(self._of_epoch)

    def __call__(self, epoch):
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
    """The inputs and labels of all examples, and the batch of some of them."""

    def __init__(self, inputs, labels, padding_id, ignore_id):
        self.inputs = {name: _column(column, name) for name, column in inputs.items()}
        self.labels = None if labels is None else _column(labels, "labels")
        self.padding_id, self.ignore_id = padding_id, ignore_id
        self.all = {**self.inputs, **({} if labels is None else {"labels": self.labels})}
        counts = {name: len(column) for name, column in self.all.items()}
        if len(set(counts.values())) != 1:
            raise SequenceDataError(f"Columns must hold equally many examples. Received: {counts}")
        if not any(isinstance(column, Ragged) for column in self.inputs.values()):
            raise SequenceDataError(f"No input holds sequences. Received: {sorted(inputs)}")

    def lengths(self):
        return functools.reduce(
            np.maximum, [column.lengths for column in self.all.values() if isinstance(column, Ragged)]
        )

    def batch(self, rows, length, empty):
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
