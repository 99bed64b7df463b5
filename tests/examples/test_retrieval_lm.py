"""The pieces of the retrieval example, on sentences that this file makes up."""

import math

import keras
import numpy as np
import pytest

from keras_transformer import text, training

pytestmark = pytest.mark.exhaustive

WORDS = ("a", "film", "of", "rare", "wit", "and", "dull", "stretches", "that", "never", "ends", "its", "cast", "shines")


def sentences(count, seed):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, 12)) + " ." for _ in range(count)]


@pytest.fixture(scope="module")
def example(example_module):
    return example_module("retrieval_lm")


@pytest.fixture(scope="module")
def collections(tmp_path_factory, example):
    folder, reviews = tmp_path_factory.mktemp("data"), sentences(20, seed=0)
    # The first four of the test are in the reviews, in another spelling.
    test = [*(each.replace(" .", ", ").upper() for each in reviews[:4]), *sentences(5, seed=2)]
    files = {"stsa.fine.train": sentences(15, seed=1), "stsa.fine.test": test, "rt-polarity.all": reviews}
    for name, lines in files.items():
        (folder / name).write_text("".join(f"1 {line}\n" for line in lines), encoding="latin-1")
    return example.load_sentences(folder, smoke=False)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory, example, collections):
    out = tmp_path_factory.mktemp("out")
    tokenizer = text.Characters.train(collections["reviews"])
    databases = {name: example.build_database(out / name, collections[name], tokenizer) for name in example.DATABASES}
    return out, tokenizer, databases


def test_sentences_come_without_labels(collections):
    assert {name: len(each) for name, each in collections.items()} == {"training": 15, "test": 9, "reviews": 20}
    assert collections["training"] == sentences(15, seed=1)


def test_a_sentence_in_another_spelling_is_known(example, collections, prepared):
    out, tokenizer, _ = prepared
    held_out = example.held_out_texts(out, collections, tokenizer)
    assert {name: each.num_documents for name, each in held_out.items()} == {"known": 4, "new": 5}


def test_conditions_differ_in_the_neighbors_alone(example, prepared):
    _, _, databases = prepared
    chunks = databases["training"].chunks
    found = {name: database.neighbors_of(chunks, 2) for name, database in databases.items()}
    conditions = example.conditions(found, databases)
    true, shuffled, none, own = (conditions[name][0] for name in example.CONDITIONS)
    assert sorted(map(tuple, shuffled)) == sorted(map(tuple, true))
    assert (shuffled != true).any()
    assert (none == -1).all()
    ids = np.arange(len(chunks))
    assert (chunks.documents(own) != chunks.documents(ids)[:, None]).all()


class Bigram(keras.Model):
    """Says of the next character what the last one tells, whatever the neighbors."""

    def __init__(self, table):
        super().__init__()
        self.table = keras.ops.convert_to_tensor(table)

    def call(self, inputs):
        return keras.ops.take(self.table, inputs["token_ids"], axis=0)


def test_bits_are_those_of_every_character_but_the_first(example, prepared):
    _, tokenizer, databases = prepared
    chunks, reviews = databases["training"].chunks, databases["reviews"]
    table = np.random.default_rng(0).normal(size=(tokenizer.vocabulary_size,) * 2).astype("float32")
    model = Bigram(table)
    model.compile(loss=training.MaskedCrossentropy(), metrics=[training.Perplexity()])
    found = example.bits(model, example.evaluation(chunks, reviews.neighbors_of(chunks, 2), reviews))
    log_probs = table.astype("float64") - np.log(np.exp(table.astype("float64")).sum(axis=1, keepdims=True))
    losses = []
    for start, end in zip(chunks.document_starts, chunks.document_starts[1:], strict=False):
        token_ids = np.asarray(chunks.token_ids[start:end]).astype("int64")
        losses += (-log_probs[token_ids[:-1], token_ids[1:]] / math.log(2)).tolist()
    assert found == pytest.approx(np.mean(losses), abs=1e-4)


def test_both_models_learn_from_the_same_batches(example, prepared):
    class Arguments:
        batch_size, steps, seed = 3, 4, 0

    batches = example.training_batches(prepared[2], Arguments)
    plain = batches.with_inputs(("token_ids", "padding_mask"))
    for step in (0, 3, 5):
        (inputs, labels), (bare, same) = batches[step], plain[step]
        np.testing.assert_array_equal(labels, same)
        assert set(inputs) - set(bare) == {"neighbor_token_ids", "neighbor_mask"}
        np.testing.assert_array_equal(inputs["token_ids"], bare["token_ids"])
