"""Documents of any lengths in rows of one length, several to a row, none of which sees another."""

import functools
import hashlib

import numpy as np

from keras_transformer.data.batch_stream import BatchStream
from keras_transformer.data.errors import SequenceDataError
from keras_transformer.data.sequences.ragged import Ragged
from keras_transformer.utils.labels import IGNORE_ID


def pack(
    documents,
    sequence_length,
    batch_size,
    *,
    cut_documents=False,
    shuffle=True,
    seed=0,
    padding_id=0,
    ignore_id=IGNORE_ID,
):
    """Batches of rows of one length that are filled with whole documents, for next-token training.

    Each document is read without its last token and labeled without its first, so that no label crosses a boundary.
    Documents go, longest first, to the row with the least room that holds them; one longer than a row is cut into pieces.

    Args:
        documents: sequences of token ids (lists, or a `Ragged`). One of fewer than two tokens teaches nothing: left out.
        sequence_length: int >= 1. T.
        batch_size: int >= 1. B.
        cut_documents: bool. Whether documents follow one another in their own order and are cut where a row ends: no
            padding but in the last row, at the price of more cut documents. Defaults to False.
        shuffle: bool. Whether the rows come in another order in each epoch.
        seed: int >= 0.
        padding_id: int. In the place of missing tokens.
        ignore_id: int. The label there.

    Returns:
        A `BatchStream` of fixed shapes: a dict of "token_ids", "segment_ids" and "positions", int32 `(B, T)`, and
        "padding_mask", bool `(B, T)`; and labels, int32 `(B, T)`. Segments count from 1 in each row, 0 is padding; positions
        count from 0 in each piece. The last batch is filled up with empty rows. `efficiency` is the share of real tokens.

    Raises:
        SequenceDataError: no document has two tokens.
        ValueError: an argument is out of its range.

    `models.Decoder(..., packed=True)` takes these inputs. In a model of your own, `attention.segment_mask` computes the
    attention mask from the segments.

    Example:

    >>> rows = pack([[1, 2, 3], [4, 5], [6, 7, 8, 9]], sequence_length=3, batch_size=2, shuffle=False)
    >>> inputs, labels = rows[0]
    >>> inputs["token_ids"].tolist(), labels.tolist()
    ([[6, 7, 8], [1, 2, 4]], [[7, 8, 9], [2, 3, 5]])
    >>> inputs["segment_ids"].tolist(), inputs["positions"].tolist()
    ([[1, 1, 1], [1, 1, 2]], [[0, 1, 2], [0, 1, 0]])

    Reference: best-fit packing as in Ding et al., arXiv 2404.10830, section 2; the masks and positions between documents as
    in Krell et al., arXiv 2107.02027, section 3.2.
    """
    for name, value, least in (
        ("sequence_length", sequence_length, 1),
        ("batch_size", batch_size, 1),
        ("seed", seed, 0),
    ):
        if value < least:
            raise ValueError(f"{name} must be at least {least}. Received: {value}")
    documents = Ragged.of(documents)
    lengths = np.maximum(documents.lengths - 1, 0)
    if not lengths.any():
        raise SequenceDataError(f"None of {len(documents)} documents has the two tokens that teach one.")
    split = _split_stream if cut_documents else _split_documents
    starts, sizes = split(documents.starts[lengths > 0], lengths[lengths > 0], sequence_length)
    room = _follow if cut_documents else _best_fit
    rows = _Rows(documents.values, starts, sizes, room(sizes, sequence_length), sequence_length)
    steps = -(-len(rows) // batch_size)

    @functools.lru_cache(maxsize=2)
    def order_of(epoch):
        return np.random.default_rng([seed, epoch]).permutation(len(rows)) if shuffle else np.arange(len(rows))

    def make(epoch, step):
        order = order_of(epoch)
        return rows.batch(order[step * batch_size : (step + 1) * batch_size], batch_size, padding_id, ignore_id)

    settings = (sequence_length, batch_size, cut_documents, shuffle, seed, padding_id, ignore_id)
    fingerprint = hashlib.sha256(repr(settings).encode() + starts.tobytes() + sizes.tobytes()).hexdigest()[:16]
    result = BatchStream(make, steps, fingerprint=fingerprint, fixed_shapes=True)
    result.efficiency = float(sizes.sum() / (len(rows) * sequence_length))
    return result


class _Rows:
    """Pieces of documents in rows: `pieces` are sorted by row, and stand in it in that order."""

    def __init__(self, values, starts, sizes, row_of_piece, sequence_length):
        order = np.argsort(row_of_piece, kind="stable")
        self.values, self.sequence_length = values, sequence_length
        self.starts, self.sizes = starts[order], sizes[order]
        self.first = np.searchsorted(row_of_piece[order], np.arange(int(row_of_piece.max()) + 2))

    def __len__(self):
        return len(self.first) - 1

    def batch(self, rows, batch_size, padding_id, ignore_id):
        shape = (batch_size, self.sequence_length)
        token_ids, labels = np.full(shape, padding_id, "int32"), np.full(shape, ignore_id, "int32")
        segment_ids, positions = np.zeros(shape, "int32"), np.zeros(shape, "int32")
        for index, row in enumerate(rows):
            pieces = slice(self.first[row], self.first[row + 1])
            sizes = self.sizes[pieces]
            within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
            places = np.repeat(self.starts[pieces], sizes) + within
            end = len(places)
            token_ids[index, :end], labels[index, :end] = self.values[places], self.values[places + 1]
            segment_ids[index, :end] = np.repeat(np.arange(1, len(sizes) + 1), sizes)
            positions[index, :end] = within
        inputs = {"token_ids": token_ids, "padding_mask": segment_ids > 0}
        return {**inputs, "segment_ids": segment_ids, "positions": positions}, labels


def _split_documents(starts, sizes, sequence_length):
    """Pieces of a row at most, each document from its beginning: their starts and sizes."""
    return _cut_at(starts, sizes, np.zeros_like(sizes), sequence_length)


def _split_stream(starts, sizes, sequence_length):
    """Pieces between the borders of the rows, when documents follow one another."""
    return _cut_at(starts, sizes, (np.cumsum(sizes) - sizes) % sequence_length, sequence_length)


def _cut_at(starts, sizes, column, sequence_length):
    """Cuts documents that begin at a column of a row at every end of a row."""
    counts = -(-(column + sizes) // sequence_length)
    index = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    column, sizes, starts = (np.repeat(array, counts) for array in (column, sizes, starts))
    first = np.maximum(index * sequence_length - column, 0)
    last = np.minimum((index + 1) * sequence_length - column, sizes)
    return starts + first, last - first


def _follow(sizes, sequence_length):
    """The row of each piece, where they fill one row after another."""
    return (np.cumsum(sizes) - sizes) // sequence_length


def _best_fit(sizes, sequence_length):
    """The row of each piece: longest first, into the row with the least room that holds it."""
    rows = np.empty(len(sizes), "int64")
    with_room = [[] for _ in range(sequence_length + 1)]
    # Bit r is set where some row has room r; the lowest set bit from a size on is the best fit.
    rooms, count = 0, 0
    for piece in np.argsort(-sizes, kind="stable"):
        size = int(sizes[piece])
        fitting = rooms >> size
        if fitting:
            room = size + (fitting & -fitting).bit_length() - 1
            row = with_room[room].pop()
            if not with_room[room]:
                rooms &= ~(1 << room)
        else:
            room, row, count = sequence_length, count, count + 1
        rows[piece] = row
        if room > size:
            with_room[room - size].append(row)
            rooms |= 1 << (room - size)
    return rows
