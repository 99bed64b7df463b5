"""Batches of text with neighbors."""

import numpy as np
import pytest

from keras_transformer.retrieval import (
    ChunkDatabase,
    RetrievalError,
    retrieval_batches,
    retrieval_evaluation_batches,
)
from keras_transformer.text import Bytes

DOCUMENTS = ["the cat sat on the mat", "ha", "the cat ate the rat, did it", "x"]


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    return ChunkDatabase.build(tmp_path_factory.mktemp("pets") / "database", DOCUMENTS, Bytes(), chunk_size=4)


@pytest.fixture(scope="module")
def found(database):
    return database.neighbors_of(database.chunks, 2)


def text(token_ids, mask):
    return Bytes().decode(token_ids[mask])


def test_stretches_are_of_one_document_with_the_neighbors_of_their_chunks(database, found):
    stream = retrieval_batches(database.chunks, found, database, 12, 8, steps_per_epoch=5, seed=3)
    starts = set()
    for step in range(10):
        inputs, labels = stream[step]
        for row in range(8):
            here = text(inputs["token_ids"][row], inputs["padding_mask"][row])
            ((document, at),) = [
                (document, at)
                for document in DOCUMENTS
                for at in range(0, len(document) - 1, 4)
                if document[at : at + 12] == here
            ]
            starts.add(here)
            count = (labels[row] >= 0).sum()
            assert Bytes().decode(labels[row][:count]) == document[at + 1 : at + 13]
            first = database.chunks.first_chunks[DOCUMENTS.index(document)] + at // 4
            for number in range(3):
                expected, mask = np.zeros((2, 8), "int32"), np.zeros((2, 8), bool)
                if at + 4 * number + 4 <= len(document):
                    expected, mask = database.chunks.passages(found[first + number], 8)
                np.testing.assert_array_equal(inputs["neighbor_token_ids"][row, number], expected)
                np.testing.assert_array_equal(inputs["neighbor_mask"][row, number], mask)
    assert len(starts) > 8


def test_an_epoch_goes_through_every_label_once(database, found):
    stream = retrieval_evaluation_batches(database.chunks, found, database, 8, 3)
    texts, seen = [], 0
    for step in range(len(stream)):
        inputs, labels = stream[step]
        assert labels.shape == (3, 8)
        seen += (labels >= 0).sum()
        texts += [
            text(*each) for each in zip(inputs["token_ids"], inputs["padding_mask"], strict=True) if each[1].any()
        ]
    assert seen == sum(len(document) - 1 for document in DOCUMENTS)
    assert texts == [d[at : at + 8] for d in DOCUMENTS for at in range(0, len(d) - 1, 8)]


def test_the_same_seed_gives_the_same_batches(database, found):
    made = [retrieval_batches(database.chunks, found, database, 8, 4, 3, seed=seed) for seed in (1, 1, 2)]
    for step in (0, 4):
        first, again, other = (stream[step][0]["token_ids"] for stream in made)
        np.testing.assert_array_equal(first, again)
        assert (first != other).any()
    assert made[0].fingerprint == made[1].fingerprint != made[2].fingerprint


def test_refused(database, found):
    with pytest.raises(RetrievalError, match="multiple"):
        retrieval_batches(database.chunks, found, database, 10, 4, 3)
    with pytest.raises(RetrievalError, match="one per chunk. Received: 3"):
        retrieval_evaluation_batches(database.chunks, found[:3], database, 8, 4)
    with pytest.raises(RetrievalError, match="batch_size"):
        retrieval_batches(database.chunks, found, database, 8, 0, 3)
