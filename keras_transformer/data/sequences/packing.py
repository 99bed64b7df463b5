"""Packing of documents into rows of equal length, with separate attention for each document."""

from __future__ import annotations

import functools
import hashlib

import numpy as np

from keras_transformer.data.batch_stream import BatchStream
from keras_transformer.data.errors import SequenceDataError
from keras_transformer.data.sequences.ragged import Ragged
from keras_transformer.utils.labels import IGNORE_ID
from keras_transformer.utils.types import ArrayLike


def pack(
    documents: ArrayLike,
    sequence_length: int,
    batch_size: int,
    *,
    cut_documents: bool = False,
    shuffle: bool = True,
    seed: int = 0,
    padding_id: int = 0,
    ignore_id: int = IGNORE_ID,
    label_masks: ArrayLike = None,
) -> BatchStream:
    """Packs whole documents into rows of one length, for next-token training.

    Inputs are documents without their last token, labels documents without their first, so that no label is of another
    document. Documents are placed, longest first, in the row with the least free space that is large enough (best fit);
    those longer than a row are split.

    Args:
        documents: sequences of token ids (lists, or a `Ragged`). Those with fewer than two tokens are dropped.
        sequence_length: int >= 1. T.
        batch_size: int >= 1. B.
        cut_documents: bool. Whether to concatenate documents in their order and split them at the ends of rows: only the
            last row has padding, but more documents are split. Default False.
        shuffle: bool. Whether to shuffle the rows in each epoch. Default True.
        seed: int >= 0.
        padding_id: int. Token id of padding.
        ignore_id: int. Label of padding.
        label_masks: for each document a sequence of as many bools, False for tokens that are no label, such as questions:
            see `encode_chats`. None: every token is a label.

    Returns:
        A `BatchStream` of fixed shapes: a dict of "token_ids", "segment_ids" and "positions", int32 `(B, T)`, and
        "padding_mask", bool `(B, T)`; and labels, int32 `(B, T)`. Segments count from 1 in each row, 0 is padding; positions
        count from 0 in each segment. The last batch is filled with empty rows. `efficiency` is the fraction of real tokens.

    Raises:
        SequenceDataError: no document has two tokens; a label mask of another length than its document, or no label in any.
        ValueError: an argument is out of its range.

    `models.Decoder(..., packed=True)` takes these inputs, and so does any decoder after `models.packed`. In a model of your
    own, `attention.segment_mask` computes the attention mask from the segments.

    Example:

    >>> rows = pack([[1, 2, 3], [4, 5], [6, 7, 8, 9]], sequence_length=3, batch_size=2, shuffle=False)
    >>> inputs, labels = rows[0]
    >>> inputs["token_ids"].tolist(), labels.tolist()
    ([[6, 7, 8], [1, 2, 4]], [[7, 8, 9], [2, 3, 5]])
    >>> inputs["segment_ids"].tolist(), inputs["positions"].tolist()
    ([[1, 1, 1], [1, 1, 2]], [[0, 1, 2], [0, 1, 0]])

    Reference: best-fit packing as in Ding et al., arXiv 2404.10830, section 2; attention masks and positions as in Krell et
    al., arXiv 2107.02027, section 3.2.
    """
    _check_sizes(sequence_length, batch_size, seed)
    documents = Ragged.of(documents)
    is_label = None if label_masks is None else _flat_masks(label_masks, documents)
    lengths = np.maximum(documents.lengths - 1, 0)
    if not lengths.any():
        raise SequenceDataError(f"None of {len(documents)} documents has at least two tokens.")
    split = _split_stream if cut_documents else _split_documents
    starts, sizes = split(documents.starts[lengths > 0], lengths[lengths > 0], sequence_length)
    assign = _next_fit if cut_documents else _best_fit
    rows = _Rows(documents.values, starts, sizes, assign(sizes, sequence_length), sequence_length, is_label)
    steps = -(-len(rows) // batch_size)

    @functools.lru_cache(maxsize=2)
    def order_of(epoch):
        return np.random.default_rng([seed, epoch]).permutation(len(rows)) if shuffle else np.arange(len(rows))

    def make(epoch, step):
        order = order_of(epoch)
        return rows.batch(order[step * batch_size : (step + 1) * batch_size], batch_size, padding_id, ignore_id)

    settings = (sequence_length, batch_size, cut_documents, shuffle, seed, padding_id, ignore_id)
    masks = b"" if is_label is None else is_label.tobytes()
    fingerprint = hashlib.sha256(repr(settings).encode() + starts.tobytes() + sizes.tobytes() + masks).hexdigest()[:16]
    result = BatchStream(make, steps, fingerprint=fingerprint, fixed_shapes=True)
    result.efficiency = float(sizes.sum() / (len(rows) * sequence_length))
    return result


def _check_sizes(sequence_length: int, batch_size: int, seed: int) -> None:
    sizes = (("sequence_length", sequence_length, 1), ("batch_size", batch_size, 1), ("seed", seed, 0))
    for name, value, least in sizes:
        if value < least:
            raise ValueError(f"{name} must be at least {least}. Received: {value}")


class _Rows:
    """Pieces of documents, sorted by row."""

    def __init__(
        self,
        values: np.ndarray,
        starts: np.ndarray,
        sizes: np.ndarray,
        row_of_piece: np.ndarray,
        sequence_length: int,
        is_label: np.ndarray | None,
    ) -> None:
        order = np.argsort(row_of_piece, kind="stable")
        self.values, self.sequence_length, self.is_label = values, sequence_length, is_label
        self.starts, self.sizes = starts[order], sizes[order]
        self.first = np.searchsorted(row_of_piece[order], np.arange(int(row_of_piece.max()) + 2))

    def __len__(self):
        return len(self.first) - 1

    def batch(
        self, rows: np.ndarray, batch_size: int, padding_id: int, ignore_id: int
    ) -> tuple[dict[str, np.ndarray], np.ndarray]:
        shape = (batch_size, self.sequence_length)
        token_ids, labels = np.full(shape, padding_id, "int32"), np.full(shape, ignore_id, "int32")
        segment_ids, positions = np.zeros(shape, "int32"), np.zeros(shape, "int32")
        for index, row in enumerate(rows):
            pieces = slice(self.first[row], self.first[row + 1])
            sizes = self.sizes[pieces]
            within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
            indices = np.repeat(self.starts[pieces], sizes) + within
            end = len(indices)
            following = self.values[indices + 1]
            if self.is_label is not None:
                following = np.where(self.is_label[indices + 1], following, ignore_id)
            token_ids[index, :end], labels[index, :end] = self.values[indices], following
            segment_ids[index, :end] = np.repeat(np.arange(1, len(sizes) + 1), sizes)
            positions[index, :end] = within
        inputs = {"token_ids": token_ids, "padding_mask": segment_ids > 0}
        return {**inputs, "segment_ids": segment_ids, "positions": positions}, labels


def _flat_masks(masks, documents):
    """Returns for each value of a `Ragged` whether it is a label."""
    flat = np.zeros(len(documents.values), "bool")
    masks = list(masks)
    if len(masks) != len(documents):
        raise SequenceDataError(f"Expected a label mask for each of {len(documents)} documents. Received: {len(masks)}")
    for index, (mask, start, length) in enumerate(zip(masks, documents.starts, documents.lengths, strict=True)):
        if len(mask) != length:
            raise SequenceDataError(f"The label mask of document {index} has {len(mask)} of {length} tokens.")
        flat[start : start + length] = mask
    if not flat.any():
        raise SequenceDataError("The label masks exclude every token.")
    return flat


def _split_documents(starts, sizes, sequence_length):
    """Splits documents, from their beginnings, into pieces of at most one row; returns their starts and sizes."""
    return _cut_at(starts, sizes, np.zeros_like(sizes), sequence_length)


def _split_stream(starts, sizes, sequence_length):
    """Splits concatenated documents at the ends of rows."""
    return _cut_at(starts, sizes, (np.cumsum(sizes) - sizes) % sequence_length, sequence_length)


def _cut_at(starts, sizes, column, sequence_length):
    """Splits documents that begin at a column of a row at every end of a row."""
    counts = -(-(column + sizes) // sequence_length)
    index = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    column, sizes, starts = (np.repeat(array, counts) for array in (column, sizes, starts))
    first = np.maximum(index * sequence_length - column, 0)
    last = np.minimum((index + 1) * sequence_length - column, sizes)
    return starts + first, last - first


def _next_fit(sizes, sequence_length):
    """Returns the row of each piece if the pieces fill the rows in order."""
    return (np.cumsum(sizes) - sizes) // sequence_length


def _best_fit(sizes, sequence_length):
    """Returns the row of each piece: longest first, in the row with the least free space that is large enough."""
    rows = np.empty(len(sizes), "int64")
    rows_by_space: list[list[int]] = [[] for _ in range(sequence_length + 1)]
    # Bit r is set if a row has free space r; the lowest set bit from `size` on is the best fit.
    spaces, count = 0, 0
    for piece in np.argsort(-sizes, kind="stable"):
        size = int(sizes[piece])
        fitting = spaces >> size
        if fitting:
            space = size + (fitting & -fitting).bit_length() - 1
            row = rows_by_space[space].pop()
            if not rows_by_space[space]:
                spaces &= ~(1 << space)
        else:
            space, row, count = sequence_length, count, count + 1
        rows[piece] = row
        if space > size:
            rows_by_space[space - size].append(row)
            spaces |= 1 << (space - size)
    return rows
