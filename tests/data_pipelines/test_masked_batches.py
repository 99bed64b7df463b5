import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer import models
from keras_transformer.data import bucket_batches, hide_tokens, mask_tokens
from keras_transformer.tasks import MaskedLanguageModel
from keras_transformer.text import WordPiece
from keras_transformer.training import MaskedCrossentropy

TOKENIZER = WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghij", "##k", "##l"])
MASK = TOKENIZER.mask_id


def rows():
    random = np.random.default_rng(0)
    return [[2, *random.integers(5, TOKENIZER.vocabulary_size, length), 3] for length in (6, 9, 12, 14, 11, 7)]


def stream(labels=None):
    return bucket_batches({"token_ids": rows()}, labels, tokens_per_batch=32, fill=False)


def dataset():
    return tf.data.Dataset.from_generator(
        lambda: (stream()[step] for step in range(3)),
        output_signature={
            "token_ids": tf.TensorSpec((None, None), tf.int32),
            "padding_mask": tf.TensorSpec((None, None), tf.bool),
        },
    )


def token_ids(batches):
    """Those of two epochs."""
    epochs = [batches.epoch(0), batches.epoch(1)] if hasattr(batches, "epoch") else [batches, batches]
    return [[inputs["token_ids"].numpy() for inputs, _ in epoch] for epoch in epochs]


@pytest.mark.parametrize("source", [stream, dataset])
def test_masked_anew_in_each_epoch_and_alike_for_one_seed(source):
    first, again, other = (token_ids(mask_tokens(source(), TOKENIZER, seed=seed)) for seed in (0, 0, 1))
    for one, two in zip(sum(first, []), sum(again, []), strict=True):
        np.testing.assert_array_equal(one, two)
    masks = [[sorted(np.flatnonzero(batch == MASK)) for batch in epoch] for epoch in (first[0], first[1], other[0])]
    assert masks[0] != masks[1]
    assert masks[0] != masks[2]


def test_a_stream_goes_on_from_any_step_with_the_same_batches():
    whole = mask_tokens(stream(), TOKENIZER, selected_positions=True)
    expected = list(whole.repeat().take(2 * len(whole)).as_numpy_iterator())
    late = mask_tokens(stream(), TOKENIZER, selected_positions=True)
    late.first_step = 3
    for found, wanted in zip(late.repeat().take(3).as_numpy_iterator(), expected[3:], strict=False):
        tf.nest.map_structure(np.testing.assert_array_equal, found, wanted)
    assert len(whole) == len(stream())


def test_other_masking_is_another_training():
    prints = {
        mask_tokens(stream(), TOKENIZER).fingerprint,
        mask_tokens(stream(), TOKENIZER, seed=1).fingerprint,
        mask_tokens(stream(), TOKENIZER, rate=0.2).fingerprint,
        hide_tokens(stream([0] * 6), TOKENIZER).fingerprint,
        stream().fingerprint,
    }
    assert len(prints) == 5


def test_labels_are_the_tokens_that_were_masked():
    masked = mask_tokens(stream(), TOKENIZER, rate=0.3)
    for step in range(len(masked)):
        plain = stream()[step]
        inputs, labels = masked[step]
        chosen = labels != -100
        assert chosen.any()
        np.testing.assert_array_equal(labels[chosen], plain["token_ids"][chosen])
        np.testing.assert_array_equal(inputs["token_ids"][~chosen], plain["token_ids"][~chosen])
        np.testing.assert_array_equal(inputs["padding_mask"], plain["padding_mask"])


@pytest.mark.slow
def test_loss_over_selected_positions_is_that_over_all():
    keras.utils.set_random_seed(0)
    backbone = models.Encoder(models.Size(1, 16, 2, 32), TOKENIZER.vocabulary_size, max_sequence_length=40)
    whole, selected = (MaskedLanguageModel(backbone, selected_positions=selected) for selected in (False, True))
    for theirs, ours in zip(whole.layers[-3:], selected.layers[-3:], strict=True):
        ours.set_weights(theirs.get_weights())
    losses = []
    for model, choice in ((whole, False), (selected, True)):
        model.compile(loss=MaskedCrossentropy())
        masked = mask_tokens(stream(), TOKENIZER, selected_positions=choice)
        losses.append([model.test_on_batch(*masked[step]) for step in range(len(masked))])
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)


def test_hidden_tokens_keep_their_labels():
    labels = [[index + 1] * len(row) for index, row in enumerate(rows())]
    hidden = hide_tokens(stream(labels), TOKENIZER, rate=0.25, whole_words=True)
    for step in range(len(hidden)):
        (plain, expected), (inputs, found) = stream(labels)[step], hidden[step]
        np.testing.assert_array_equal(found, expected)
        changed = inputs["token_ids"] != plain["token_ids"]
        assert (inputs["token_ids"][changed] == MASK).all()
        assert (plain["token_ids"][changed] >= 5).all()
        assert changed.any(axis=1).all()


def test_a_data_set_with_labels():
    pairs = tf.data.Dataset.from_tensors(({"token_ids": [[2, 5, 6, 7]], "padding_mask": [[True] * 4]}, [1]))
    inputs, label = next(iter(hide_tokens(pairs, TOKENIZER, rate=0.3)))
    assert (inputs["token_ids"].numpy() == MASK).sum() == 1
    assert label.numpy().tolist() == [1]


def test_batches_without_a_mask():
    with pytest.raises(ValueError, match="mask_tokens .* padding_mask"):
        mask_tokens(tf.data.Dataset.from_tensors({"token_ids": [[1]]}), TOKENIZER)
    with pytest.raises(ValueError, match="hide_tokens .* padding_mask"):
        hide_tokens(tf.data.Dataset.from_tensors(({"token_ids": [[1]]}, [0])), TOKENIZER)
