import numpy as np
import pytest

from keras_transformer.data import SequenceDataError, evaluation_batches, language_model_batches, shuffle_buffer

TOKENS = np.arange(50, dtype="uint16")


def test_crops_are_stretches_and_begin_everywhere():
    batches = language_model_batches(TOKENS, 8, 16, steps_per_epoch=20, seed=3)
    begins = set()
    for step in range(40):
        inputs, labels = batches[step]
        assert inputs["token_ids"].dtype == labels.dtype == np.int32
        np.testing.assert_array_equal(inputs["token_ids"], inputs["token_ids"][:, :1] + np.arange(8))
        np.testing.assert_array_equal(labels, inputs["token_ids"] + 1)
        assert sorted(inputs) == ["token_ids"]
        begins |= set(inputs["token_ids"][:, 0].tolist())
    assert begins == set(range(42))  # 50 tokens hold 42 stretches of 9.


def test_crops_are_decided_by_seed_epoch_and_step():
    def begins(seed, step):
        return language_model_batches(TOKENS, 8, 16, steps_per_epoch=4, seed=seed)[step][0]["token_ids"][:, 0].tolist()

    assert begins(1, 5) == begins(1, 5)
    drawn = [begins(1, 1), begins(1, 5), begins(2, 1), begins(1, 2)]
    assert all(one != other for index, one in enumerate(drawn) for other in drawn[:index])


def test_crops_of_a_mapped_file(tmp_path):
    TOKENS.tofile(tmp_path / "tokens")
    mapped = np.memmap(tmp_path / "tokens", "uint16", "r")
    there, here = (language_model_batches(some, 8, 4, 2)[1] for some in (mapped, TOKENS))
    np.testing.assert_array_equal(there[1], here[1])


@pytest.mark.parametrize("size, steps", [(50, 3), (49, 2), (73, 3), (2, 1)])
def test_evaluation_says_every_token_but_the_first_once(size, steps):
    tokens = np.arange(100, 100 + size)
    batches = evaluation_batches(tokens, 8, 3 if size > 2 else 1)
    assert len(batches) == steps
    said = []
    for inputs, labels in (batches[step] for step in range(steps)):
        real = labels != -100
        np.testing.assert_array_equal(inputs["padding_mask"], real)
        np.testing.assert_array_equal(inputs["token_ids"][real] + 1, labels[real])
        assert labels.shape == (3 if size > 2 else 1, 8)
        said += labels[real].tolist()
    assert said == tokens[1:].tolist()


@pytest.mark.parametrize("tokens", [np.arange(8), np.arange(20.0), np.zeros((5, 5), int)])
def test_refuses_tokens(tokens):
    with pytest.raises(SequenceDataError):
        language_model_batches(tokens, 8, 2, 1)


def test_refuses_arguments():
    for name, arguments in {
        "sequence_length": (0, 1, 1),
        "batch_size": (4, 0, 1),
        "steps_per_epoch": (4, 1, 0),
    }.items():
        with pytest.raises(ValueError, match=name):
            language_model_batches(TOKENS, *arguments)


def test_buffer_loses_nothing_and_holds_no_more_than_it_may():
    taken = []

    def items():
        for item in range(1000):
            taken.append(item)
            yield item

    given = []
    for item in shuffle_buffer(items(), 50, seed=1):
        given.append(item)
        assert len(taken) - len(given) <= 50
    assert sorted(given) == list(range(1000))
    # Far from the order that it was: a random item waits for about as many as the buffer holds.
    assert 25 < np.abs(np.array(given) - np.arange(1000)).mean() < 100


def test_buffer_order_is_decided_by_its_seed():
    orders = [list(shuffle_buffer(range(99), 10, seed)) for seed in (1, 1, 2, (1, 0), (1, 1))]
    assert orders[0] == orders[1]
    assert orders[0] != orders[2]
    assert orders[3] != orders[4]
    assert list(shuffle_buffer("abc", 1)) == list("abc")
    with pytest.raises(ValueError, match="buffer_size"):
        shuffle_buffer("abc", 0)
