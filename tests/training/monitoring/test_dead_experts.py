import keras
import numpy as np
import pytest

from keras_transformer import training
from keras_transformer.feedforward import MixtureOfExperts, TopKRouter


def model(preferred):
    """A mixture of four experts whose router sends tokens of ones to the experts with the largest preference."""
    router = TopKRouter(4, top_k=1, load_balancing_weight=0)
    made = keras.Sequential([keras.Input((3, 4)), MixtureOfExperts(2, router=router, name="mixture")])
    made.layers[0].router.kernel.assign(np.tile(np.array([preferred], "float32"), (4, 1)))
    made.compile(keras.optimizers.SGD(0.0), "mse")
    return made


def batches(signs):
    """A batch of one row for each sign: ones go to the largest preference, minus ones to the smallest."""
    x = np.array(signs, "float32").reshape(-1, 1, 1) * np.ones((1, 3, 4), "float32")
    return {"x": x, "y": x, "batch_size": 1, "shuffle": False, "verbose": 0}


def test_experts_without_tokens_are_reported_once():
    experts = training.DeadExperts(every=2, patience=2)
    with pytest.warns(UserWarning, match="experts 1, 2, 3 of 'mixture' got less than 2.50% of the tokens") as caught:
        model([1, 0, 0, 0]).fit(**batches([1] * 8), callbacks=[experts])
    assert len([each for each in caught if "mixture" in str(each.message)]) == 1
    assert experts.dead == {"mixture": [1, 2, 3]}
    np.testing.assert_array_equal(experts.shares["mixture"], [[1, 0, 0, 0]] * 4)


def test_an_expert_that_is_used_again_is_not_dead():
    experts = training.DeadExperts(every=2, patience=2)
    with pytest.warns(UserWarning, match="expert"):
        model([1, 0, 0, -1]).fit(**batches([1, 1, 1, 1, 1, -1]), callbacks=[experts])
    np.testing.assert_array_equal(experts.shares["mixture"], [[1, 0, 0, 0], [1, 0, 0, 0], [0.5, 0, 0, 0.5]])
    assert experts.dead == {"mixture": [1, 2]}


def test_counts_go_on_over_epochs_with_validation(recwarn):
    experts = training.DeadExperts(every=4, patience=9)
    data = batches([1, -1, 1])
    model([1, 0, 0, -1]).fit(**data, epochs=4, validation_data=(data["x"], data["y"]), callbacks=[experts])
    shares = np.array(experts.shares["mixture"])
    assert shares.shape == (3, 4)
    np.testing.assert_allclose(shares[:, 0] * 4, [3, 2, 3])
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    assert [each for each in recwarn if "mixture" in str(each.message)] == []


def test_refusals():
    with pytest.raises(ValueError, match="least"):
        training.DeadExperts(least=1.0)
    plain = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    plain.compile("sgd", "mse")
    with pytest.raises(ValueError, match="no MixtureOfExperts"):
        plain.fit(np.ones((1, 1)), np.ones((1, 1)), callbacks=[training.DeadExperts()], verbose=0)
