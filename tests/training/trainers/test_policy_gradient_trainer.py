"""The policy gradient against its formula in float64."""

import keras
import numpy as np
import pytest

from keras_transformer import models, tasks
from keras_transformer.training import PolicyGradientTrainer

WORDS = 7
INPUTS = {
    "token_ids": np.array([[1, 2, 3, 4], [5, 6, 1, 0]]),
    "padding_mask": np.array([[True] * 4, [True, True, True, False]]),
    "advantages": np.array([1.5, -2.0], "float32"),
}
LABELS = np.array([[-100, 3, 4, 5], [6, 1, -100, -100]])


def language_model(seed):
    model = tasks.LanguageModel(models.Llama(models.Size(1, 8, 2, 16), WORDS))
    rng = np.random.default_rng(seed)
    model.set_weights([rng.normal(0, 0.5, weight.shape) for weight in model.get_weights()])
    return model


def log_probs(model):
    logits = np.array(model({name: INPUTS[name] for name in ("token_ids", "padding_mask")}), "float64")
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def test_the_loss_is_that_of_the_formula():
    model, reference = language_model(0), language_model(1)
    ours, theirs = log_probs(model), log_probs(reference)
    gains, divergences, was_clipped = [], [], []
    for row, column in zip(*np.nonzero(LABELS >= 0), strict=True):
        ratio = np.exp((ours - theirs)[row, column, LABELS[row, column]])
        advantage = INPUTS["advantages"][row]
        gains.append(min(ratio * advantage, np.clip(ratio, 0.7, 1.3) * advantage))
        was_clipped.append(gains[-1] != ratio * advantage)
        p = np.exp(ours[row, column])
        divergences.append((p * (ours - theirs)[row, column]).sum())
    assert 0 < sum(was_clipped) < len(was_clipped)
    trainer = PolicyGradientTrainer(model, reference, clip=0.3, kl_weight=0.25)
    trainer.compile("sgd", jit_compile=False)
    found = trainer.evaluate(INPUTS, LABELS, verbose=0, return_dict=True)
    assert found["kl"] == pytest.approx(np.mean(divergences), rel=1e-5)
    assert found["loss"] == pytest.approx(-np.mean(gains) + 0.25 * np.mean(divergences), rel=1e-5)


def test_training_makes_good_tokens_likelier_and_leaves_the_reference():
    model, reference = language_model(0), language_model(0)
    before, weights = log_probs(model), reference.get_weights()
    trainer = PolicyGradientTrainer(model, reference, kl_weight=0.01)
    trainer.compile(keras.optimizers.SGD(0.02), jit_compile=False)
    trainer.fit(INPUTS, LABELS, epochs=3, verbose=0)
    change = log_probs(model) - before
    gained = [change[row, column, LABELS[row, column]] for row, column in zip(*np.nonzero(LABELS >= 0), strict=True)]
    assert np.mean(gained[:3]) > 0 > np.mean(gained[3:])
    assert all((old == new).all() for old, new in zip(weights, reference.get_weights(), strict=True))


@pytest.mark.exhaustive
def test_the_penalty_holds_the_model_to_the_reference():
    ends = {}
    for kl_weight in (0.0, 5.0):
        model, reference = language_model(0), language_model(0)
        trainer = PolicyGradientTrainer(model, reference, clip=10.0, kl_weight=kl_weight)
        trainer.compile(keras.optimizers.SGD(0.05), jit_compile=False)
        trainer.fit(INPUTS, LABELS, epochs=8, verbose=0)
        ends[kl_weight] = trainer.evaluate(INPUTS, LABELS, verbose=0, return_dict=True)["kl"]
    assert ends[5.0] < 0.3 * ends[0.0]


def test_arguments_are_checked():
    model = language_model(0)
    other = tasks.LanguageModel(models.Llama(models.Size(1, 8, 2, 16), WORDS + 1))
    with pytest.raises(ValueError, match="tokens"):
        PolicyGradientTrainer(model, other)
    with pytest.raises(ValueError, match="clip"):
        PolicyGradientTrainer(model, language_model(1), clip=0.0)
