import keras
import numpy as np
import pytest

from keras_transformer.training import MaskedAccuracy, MaskedCrossentropy, Perplexity

RANDOM = np.random.default_rng(0)
BATCHES = [
    (np.array([[1, 2, -100]]), RANDOM.normal(size=(1, 3, 4)) * 3),
    (np.array([[3, 3, 0], [0, -100, -100]]), RANDOM.normal(size=(2, 3, 4)) * 3),
]


def tokens(weights=None):
    """Log-probability of the label, whether it is the likeliest, and weight, for every labeled token of the batches."""
    rows = []
    for labels, logits in BATCHES:
        log_probabilities = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        for row, line in enumerate(labels):
            for place, label in enumerate(line):
                if label != -100:
                    best = logits[row, place].argmax() == label
                    rows.append((log_probabilities[row, place, label], best, 1.0 if weights is None else weights[row]))
    return np.array(rows).T


@pytest.mark.parametrize("weights", [None, [0.5, 3.0]])
def test_tokens_weigh_alike_over_batches_of_other_sizes(weights):
    perplexity, accuracy = Perplexity(), MaskedAccuracy()
    for labels, logits in BATCHES:
        given = None if weights is None else np.array(weights[: len(labels)])
        perplexity.update_state(labels, logits, given)
        accuracy.update_state(labels, logits, given)
    log_probabilities, right, weight = tokens(weights)
    assert float(perplexity.result()) == pytest.approx(np.exp(-np.average(log_probabilities, weights=weight)), rel=1e-6)
    assert float(accuracy.result()) == pytest.approx(np.average(right, weights=weight), rel=1e-6)


def test_of_even_guesses_is_the_number_of_classes():
    metric = Perplexity()
    metric.update_state(np.array([[0, 6, -100]]), np.full((1, 3, 7), 2.5))
    assert float(metric.result()) == pytest.approx(7.0, rel=1e-6)


def test_what_is_ignored_changes_nothing_even_where_it_is_infinite():
    logits = np.array([[[0.0, 1.0], [np.inf, -np.inf]]])
    metric = Perplexity()
    metric.update_state(np.array([[1, -100]]), logits)
    assert float(metric.result()) == pytest.approx(1 + np.exp(-1), rel=1e-6)


def test_reset_forgets():
    metric = Perplexity()
    metric.update_state(*BATCHES[0])
    metric.reset_state()
    assert float(metric.result()) == 1.0


def test_in_a_compiled_model_that_was_saved(tmp_path):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Embedding(4, 4)])
    model.compile("sgd", MaskedCrossentropy(), metrics=[Perplexity(ignore_id=0), MaskedAccuracy(ignore_id=0)])
    model.save(tmp_path / "model.keras")
    model = keras.models.load_model(tmp_path / "model.keras")
    inputs, labels = np.array([[1, 2, 3], [3, 0, 1]]), np.array([[2, 1, 0], [1, 3, 3]])
    logits = model.predict(inputs, verbose=0).astype("float64")
    scores = model.evaluate(inputs, labels, verbose=0, return_dict=True)
    log_probabilities = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    real = labels != 0
    picked = np.take_along_axis(log_probabilities, labels[..., None], -1)[..., 0][real]
    assert scores["perplexity"] == pytest.approx(np.exp(-picked.mean()), rel=1e-5)
    assert scores["masked_accuracy"] == pytest.approx((logits.argmax(-1) == labels)[real].mean(), rel=1e-5)
