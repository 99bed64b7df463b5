"""Orders of factorization by their definition, and a model that learns from them."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer import models, tasks
from keras_transformer.data import TokenPermutation, bucket_batches, permute_tokens
from keras_transformer.text import WordPiece
from keras_transformer.training import MaskedCrossentropy

TOKENIZER = WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghij"])
SCHEMES = [{}, {"max_span_length": 2, "rate": 0.3}, {"max_span_length": None}, {"max_span_length": None, "rate": 0.5}]


def rows(lengths=(6, 19, 12, 31, 1, 7)):
    random = np.random.default_rng(0)
    return [[2, *random.integers(5, TOKENIZER.vocabulary_size, length), 3] for length in lengths]


def padded():
    ids = np.zeros((len(rows()), 33), "int32")
    for row, tokens in zip(ids, rows(), strict=True):
        row[: len(tokens)] = tokens
    return ids, ids != 0


def stream(**options):
    batches = bucket_batches({"token_ids": rows()}, None, tokens_per_batch=66, fill=False)
    return permute_tokens(batches, TOKENIZER, **options)


@pytest.mark.parametrize("options", SCHEMES)
def test_targets_and_ranks(options):
    ids, mask = padded()
    rate = options.get("rate", 1 / 6)
    for seed in range(20):
        ranks, positions, labels = TokenPermutation(TOKENIZER, **options)(ids, mask, seed=seed)
        assert positions.shape == labels.shape == (len(ids), int(np.ceil(rate * ids.shape[1])))
        for row, order, places, found in zip(ids, ranks, positions, labels, strict=True):
            ordinary = set(np.flatnonzero(row >= 5))
            targets = places[places >= 0]
            assert len(targets)
            assert set(targets) <= ordinary
            assert list(targets) == sorted(set(targets))
            np.testing.assert_array_equal(found, [row[place] if place >= 0 else -100 for place in places])
            members = np.flatnonzero(order)
            assert sorted(order[members]) == list(range(1, len(members) + 1))
            if options.get("max_span_length", 5) is None:
                assert set(members) == ordinary
                assert set(order[targets]) == set(range(len(members) - len(targets) + 1, len(members) + 1))
            else:
                assert set(members) == set(targets)


def test_shares_and_spans():
    permutation = TokenPermutation(TOKENIZER, rate=0.25, max_span_length=3)
    ids = np.full((200, 60), 7, "int32")
    ranks, positions, _ = permutation(ids, np.ones(ids.shape, bool), seed=0)
    assert abs((positions >= 0).mean() * 15 / 60 - 0.25) < 0.02
    spans = "".join("x" if rank else " " for row in ranks for rank in [*row, 0]).split()
    assert {len(span) for span in spans} >= {1, 2, 3}
    # A target stands anywhere in the order.
    assert abs(np.mean([row[place[0]] / row.max() for row, place in zip(ranks, positions, strict=True)]) - 0.53) < 0.08


@pytest.mark.parametrize("options", SCHEMES)
def test_a_token_sees_those_before_it_in_the_order_and_the_context(options):
    permutation = TokenPermutation(TOKENIZER, **options)
    batches = bucket_batches({"token_ids": rows()}, None, tokens_per_batch=66, fill=False)
    for step in range(len(batches)):
        inputs, labels = stream(seed=3, **options)[step]
        ids, mask = inputs["token_ids"], inputs["padding_mask"]
        ranks, positions, expected = permutation(ids, mask, seed=(3, step))
        np.testing.assert_array_equal(labels, expected)
        sees, mapping = inputs["permutation_mask"], inputs["targets"]
        for b, i, j in np.ndindex(sees.shape):
            assert sees[b, i, j] == (ranks[b, j] < ranks[b, i] or ranks[b, j] == 0)
        for b, p, j in np.ndindex(mapping.shape):
            assert mapping[b, p, j] == (positions[b, p] == j)


def test_other_orders_in_each_epoch_and_the_same_for_one_seed():
    def masks(seed):
        batches = stream(seed=seed)
        return [[inputs["permutation_mask"].numpy() for inputs, _ in batches.epoch(index)] for index in (0, 1)]

    first, again, other = masks(0), masks(0), masks(1)
    for one, two in zip(sum(first, []), sum(again, []), strict=True):
        np.testing.assert_array_equal(one, two)
    assert any(not np.array_equal(*pair) for pair in zip(first[0], first[1], strict=True))
    assert any(not np.array_equal(*pair) for pair in zip(first[0], other[0], strict=True))


def test_a_tf_dataset_gives_what_a_stream_gives():
    ids, mask = padded()
    dataset = tf.data.Dataset.from_tensors({"token_ids": ids, "padding_mask": mask})
    inputs, labels = next(iter(permute_tokens(dataset, TOKENIZER, seed=1)))
    ids, sees, mapping, labels = (
        np.asarray(x) for x in (inputs["token_ids"], inputs["permutation_mask"], inputs["targets"], labels)
    )
    assert sees.dtype == mapping.dtype == bool
    places = mapping.argmax(axis=2)
    real = labels >= 0
    np.testing.assert_array_equal(mapping.any(axis=2), real)
    np.testing.assert_array_equal(np.take_along_axis(ids, places, axis=1)[real], labels[real])
    at_places = np.take_along_axis(sees, places[:, :, None], axis=1)
    assert not np.take_along_axis(at_places, places[:, :, None], axis=2)[real].any()  # None sees itself.


@pytest.mark.parametrize("options", [{"rate": 0.0}, {"rate": 1.0}, {"max_span_length": 0}])
def test_settings_out_of_range(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        TokenPermutation(TOKENIZER, **options)


def test_batches_without_their_padding():
    dataset = tf.data.Dataset.from_tensors({"token_ids": np.ones((1, 3), "int32")})
    with pytest.raises(ValueError, match="padding_mask"):
        permute_tokens(dataset, TOKENIZER)


@pytest.mark.slow
def test_the_loss_falls():
    """Rows count on from any token: each neighbor tells the target."""
    keras.utils.set_random_seed(0)
    start = np.random.default_rng(0).integers(0, 10, (256, 1))
    ids = (5 + (start + np.arange(12)) % 10).astype("int32")
    batches = bucket_batches({"token_ids": list(map(list, ids))}, None, tokens_per_batch=32 * 12)
    train = permute_tokens(batches, TOKENIZER, rate=0.25, max_span_length=2)
    backbone = models.XLNet(models.Size(1, 32, 2, 64), 15, use_segments=False, dropout=0.0, attention_dropout=0.0)
    model = tasks.PermutationLanguageModel(backbone)
    model.compile(keras.optimizers.Adam(0.01), MaskedCrossentropy())
    history = model.fit(train.repeat(), steps_per_epoch=len(train), epochs=8, verbose=0).history["loss"]
    assert history[0] > 1.2
    assert history[-1] < 0.2
