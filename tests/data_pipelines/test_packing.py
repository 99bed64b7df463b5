import collections

import keras
import numpy as np
import pytest

from keras_transformer.attention import MultiHeadAttention, segment_mask
from keras_transformer.data import Ragged, SequenceDataError, pack
from keras_transformer.positions import Rotary

RANDOM = np.random.default_rng(0)
# No token stands twice: each tells its document and its place.
LENGTHS = RANDOM.integers(0, 30, 60)
DOCUMENTS = [list(range(1000 * index + 1, 1000 * index + 1 + length)) for index, length in enumerate(LENGTHS, 1)]


def epoch(batches, index=0):
    return [batches[index * len(batches) + step] for step in range(len(batches))]


def pieces(batches):
    """The tokens, labels and positions of each segment of each row."""
    for inputs, labels in batches:
        for row in range(len(labels)):
            segments = inputs["segment_ids"][row]
            for segment in range(1, segments.max() + 1):
                here = segments == segment
                yield inputs["token_ids"][row][here], labels[row][here], inputs["positions"][row][here]


@pytest.mark.parametrize("cut_documents", [True, False])
@pytest.mark.parametrize("sequence_length", [7, 16, 64])
def test_every_token_is_said_once_from_within_its_document(cut_documents, sequence_length):
    batches = pack(DOCUMENTS, sequence_length, 4, cut_documents=cut_documents, seed=1)
    for index in (0, 2):
        said = collections.Counter()
        for tokens, labels, positions in pieces(epoch(batches, index)):
            np.testing.assert_array_equal(labels, tokens + 1)  # The next token of the same document.
            np.testing.assert_array_equal(positions, np.arange(len(tokens)))
            said.update(labels.tolist())
        assert said == collections.Counter(token for document in DOCUMENTS for token in document[1:])


def test_documents_that_fit_a_row_are_whole():
    for tokens, _, _ in pieces(epoch(pack(DOCUMENTS, 32, 4))):
        assert tokens[0] % 1000 == 1


def test_stream_is_cut_where_rows_end_and_nowhere_else():
    batches = pack([[1, 2, 3, 4], [11, 12, 13, 14]], 4, 3, cut_documents=True, shuffle=False, padding_id=9)
    inputs, labels = batches[0]
    assert inputs["token_ids"].tolist() == [[1, 2, 3, 11], [12, 13, 9, 9], [9] * 4]
    assert labels.tolist() == [[2, 3, 4, 12], [13, 14, -100, -100], [-100] * 4]
    assert inputs["segment_ids"].tolist() == [[1, 1, 1, 2], [1, 1, 0, 0], [0] * 4]
    assert inputs["positions"].tolist() == [[0, 1, 2, 0], [0, 1, 0, 0], [0] * 4]
    assert inputs["padding_mask"].tolist() == [[True] * 4, [True, True, False, False], [False] * 4]
    assert batches.efficiency == 6 / 8


def test_best_fit_by_hand():
    # Sizes without the last token: 6, 5, 3, 2, 2 in rows of 9: 6 + 3, 5 + 2 + 2.
    documents = [list(range(size + 1)) for size in (3, 6, 2, 5, 2)]
    batches = pack(documents, 9, 8, shuffle=False)
    sizes = [np.bincount(row)[1:].tolist() for row in batches[0][0]["segment_ids"] if row.any()]
    assert sizes == [[3, 6], [2, 5, 2]]  # In a row, in their own order.
    assert batches.efficiency == 1.0


def test_seed_and_epoch_decide_the_order():
    one, again = pack(DOCUMENTS, 16, 4, seed=1), pack(Ragged.of(DOCUMENTS), 16, 4, seed=1)
    first = [inputs["token_ids"].tolist() for inputs, _ in epoch(one)]
    assert first == [inputs["token_ids"].tolist() for inputs, _ in epoch(again)]
    assert first != [inputs["token_ids"].tolist() for inputs, _ in epoch(one, 1)]
    assert first != [inputs["token_ids"].tolist() for inputs, _ in epoch(pack(DOCUMENTS, 16, 4, seed=2))]
    assert one.repeat().element_spec[1].shape == (4, 16)


def test_attention_over_packed_rows_is_that_over_each_document_alone():
    inputs, _ = pack([[1, 2, 3, 4, 5], [11, 12, 13], [21, 22, 23, 24]], 10, 1, shuffle=False)[0]
    attention = MultiHeadAttention(2, 4, position=Rotary())
    embedding = keras.layers.Embedding(30, 8)

    def attend(token_ids, **options):
        x = embedding(np.array(token_ids))
        return np.array(attention(x, x, use_causal_mask=True, **options))

    packed = attend(
        inputs["token_ids"], attention_mask=segment_mask(inputs["segment_ids"]), positions=inputs["positions"]
    )
    alone = [attend([document])[0] for document in ([1, 2, 3, 4], [11, 12], [21, 22, 23])]
    np.testing.assert_allclose(packed[0, :9], np.concatenate(alone), atol=1e-5)
    unmasked = attend(inputs["token_ids"], positions=inputs["positions"])
    assert np.abs(unmasked[0, 4:9] - packed[0, 4:9]).max() > 1e-3


def test_refuses():
    with pytest.raises(SequenceDataError, match="None of 3 documents"):
        pack([[1], [], [2]], 4, 1)
    for name in ("sequence_length", "batch_size", "seed"):
        arguments = {"sequence_length": 4, "batch_size": 1, "seed": 0, name: -1}
        with pytest.raises(ValueError, match=name):
            pack([[1, 2]], **arguments)


def test_only_masked_in_tokens_are_labels():
    rows, masks = [[1, 2, 3], [4, 5], [6, 7, 8, 9]], [[True, False, True], [True, True], [False, False, False, True]]
    inputs, labels = pack(rows, 3, 2, shuffle=False, label_masks=masks)[0]
    assert inputs["token_ids"].tolist() == [[6, 7, 8], [1, 2, 4]]
    assert labels.tolist() == [[-100, -100, 9], [-100, 3, 5]]
    assert pack(rows, 3, 2, label_masks=masks).fingerprint != pack(rows, 3, 2).fingerprint


def test_label_masks_that_do_not_fit():
    with pytest.raises(SequenceDataError, match="each of 2 documents. Received: 1"):
        pack([[1, 2], [3, 4]], 4, 1, label_masks=[[True, True]])
    with pytest.raises(SequenceDataError, match="document 1 has 1 of 2"):
        pack([[1, 2], [3, 4]], 4, 1, label_masks=[[True, True], [True]])
    with pytest.raises(SequenceDataError, match="exclude every token"):
        pack([[1, 2]], 4, 1, label_masks=[[False, False]])
