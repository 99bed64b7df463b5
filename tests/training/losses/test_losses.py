import json
import subprocess
import sys

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.backend.gradients.vjp import vjp
from keras_transformer.training import MaskedCrossentropy
from keras_transformer.training.losses.cross_entropy import cross_entropy

LOGITS = np.random.default_rng(0).normal(size=(3, 5, 11)) * 4
LABELS = np.array([[4, 0, 10, -100, -100], [1, 2, 3, 4, 5], [-100, 9, -100, 7, 7]])


def expected(labels, logits, smoothing=0.0, weights=None, ignore_id=-100):
    """The paper's formula as it stands: the cross-entropy with a smoothed one-hot distribution, in float64."""
    classes = logits.shape[-1]
    probabilities = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    target = np.eye(classes)[np.where(labels == ignore_id, 0, labels)] * (1 - smoothing) + smoothing / classes
    losses = -(target * np.log(probabilities)).sum(-1)
    weights = (labels != ignore_id) * (1.0 if weights is None else weights)
    return (losses * weights).sum() / weights.sum()


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_is_the_mean_over_labeled_tokens(smoothing):
    loss = MaskedCrossentropy(smoothing)(LABELS, LOGITS)
    assert float(loss) == pytest.approx(expected(LABELS, LOGITS, smoothing), rel=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_gradient_is_that_of_the_formula(smoothing):
    _, pullback = vjp(lambda logits: MaskedCrossentropy(smoothing)(LABELS, logits), keras.ops.cast(LOGITS, "float32"))
    (gradient,) = pullback(keras.ops.ones(()))
    probabilities = np.exp(LOGITS) / np.exp(LOGITS).sum(-1, keepdims=True)
    target = np.eye(11)[np.abs(LABELS) % 11] * (1 - smoothing) + smoothing / 11
    counted = (LABELS != -100)[..., None]
    slope = counted * (probabilities - target) / counted.sum()
    np.testing.assert_allclose(keras.ops.convert_to_numpy(gradient), slope, atol=1e-7)


@pytest.mark.parametrize("weights", [np.array([0.5, 2.0, 3.0]), np.random.default_rng(1).random((3, 5))])
def test_weights_of_rows_and_of_tokens(weights):
    as_tokens = weights if weights.ndim == 2 else weights[:, None]
    loss = MaskedCrossentropy(0.1)(LABELS, LOGITS, weights)
    assert float(loss) == pytest.approx(expected(LABELS, LOGITS, 0.1, as_tokens), rel=1e-6)


def test_weights_of_rows_are_not_laid_along_tokens_of_equal_number():
    labels, logits = LABELS[:, :3], LOGITS[:, :3]
    weights = np.array([1.0, 5.0, 25.0])
    loss = MaskedCrossentropy()(labels, logits, weights)
    assert float(loss) == pytest.approx(expected(labels, logits, 0.0, weights[:, None]), rel=1e-6)


def test_another_ignored_label_and_none():
    assert float(MaskedCrossentropy(0.1, ignore_id=7)(np.abs(LABELS) % 11, LOGITS)) == pytest.approx(
        expected(np.abs(LABELS) % 11, LOGITS, 0.1, ignore_id=7), rel=1e-6
    )
    assert float(MaskedCrossentropy(ignore_id=None)(np.abs(LABELS) % 11, LOGITS)) == pytest.approx(
        expected(np.abs(LABELS) % 11, LOGITS, ignore_id=None), rel=1e-6
    )


def test_one_label_a_row():
    loss = MaskedCrossentropy(0.2)(LABELS[:, 1], LOGITS[:, 1])
    assert float(loss) == pytest.approx(expected(LABELS[:, 1], LOGITS[:, 1], 0.2), rel=1e-6)


def test_what_is_ignored_changes_nothing_even_where_it_is_infinite():
    logits = LOGITS.copy()
    logits[0, 3:], logits[2, 0] = np.inf, np.nan
    assert float(MaskedCrossentropy(0.1)(LABELS, logits)) == float(MaskedCrossentropy(0.1)(LABELS, LOGITS))


def test_nothing_labeled_is_zero():
    assert float(MaskedCrossentropy(0.1)(np.full((2, 3), -100), LOGITS[:2, :3])) == 0.0


def test_half_precision_logits_are_computed_in_float32():
    logits = keras.ops.cast(LOGITS * 10, "float16")
    loss = MaskedCrossentropy(0.1)(LABELS, logits)
    exact = expected(LABELS, np.asarray(logits, "float64"), 0.1)
    assert keras.backend.standardize_dtype(loss.dtype) == "float32"
    assert float(loss) == pytest.approx(exact, rel=1e-6)


def model_of(policy="float32"):
    layers = [keras.layers.Embedding(11, 4, dtype=policy), keras.layers.Dense(11, dtype=policy)]
    return keras.Sequential([keras.Input((5,), dtype="int32"), *layers])


@pytest.mark.parametrize("jit_compile", [False, True])
def test_fit_with_row_weights(jit_compile):
    model = model_of()
    tokens, weights = np.arange(15).reshape(3, 5) % 11, np.array([1.0, 2.0, 4.0])
    before = expected(LABELS, model.predict(tokens, verbose=0).astype("float64"), 0.1, weights[:, None])
    model.compile("sgd", MaskedCrossentropy(0.1), jit_compile=jit_compile)
    history = model.fit(tokens, LABELS, sample_weight=weights, verbose=0).history
    assert history["loss"][0] == pytest.approx(before, rel=1e-5)


def test_mixed_precision_fit_is_near_the_full_one():
    losses = {}
    tokens = np.arange(15).reshape(3, 5) % 11
    for policy in ("float32", "mixed_float16"):
        keras.utils.set_random_seed(1)
        model = model_of(policy)
        model.compile(keras.optimizers.Adam(0.1), MaskedCrossentropy(0.1))
        losses[policy] = model.fit(tokens, LABELS, epochs=5, verbose=0).history["loss"]
    assert losses["float32"][-1] < losses["float32"][0] - 0.3
    np.testing.assert_allclose(losses["mixed_float16"], losses["float32"], atol=0.02)


def accumulated(batches, whole):
    """Weights after one update by SGD: from accumulated batches, and from the batch they make together."""
    results = []
    for parts, steps in ((batches, len(batches)), ([whole], None)):
        keras.utils.set_random_seed(2)
        model = model_of()
        model.compile(keras.optimizers.SGD(1.0, gradient_accumulation_steps=steps), MaskedCrossentropy(0.1))
        for labels in parts:
            model.train_on_batch(np.arange(labels.size).reshape(labels.shape) % 11 * 0 + labels.clip(0), labels)
        results.append(model.get_weights())
    return results


def test_accumulated_batches_are_one_where_their_tokens_are_equally_many():
    first, second = np.array([[1, 2, 3, -100, -100]]), np.array([[-100, 4, 4, 9, -100]])
    small, large = accumulated([first, second], np.concatenate([first, second]))
    for one, other in zip(small, large, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_accumulated_batches_weigh_alike_where_their_tokens_are_not():
    first, second = np.array([[1, 2, 3, 5, 8]]), np.array([[-100, 4, -100, -100, -100]])
    small, large = accumulated([first, second], np.concatenate([first, second]))
    assert max(np.abs(one - other).max() for one, other in zip(small, large, strict=True)) > 1e-3


def test_config_survives():
    loss = keras.losses.deserialize(keras.losses.serialize(MaskedCrossentropy(0.3, ignore_id=5, name="words")))
    assert (loss.label_smoothing, loss.ignore_id, loss.name) == (0.3, 5, "words")


@pytest.mark.parametrize("smoothing", [-0.1, 1.0])
def test_refuses(smoothing):
    with pytest.raises(ValueError, match="label_smoothing"):
        MaskedCrossentropy(smoothing)


UNDER_JAX = """
import json, os, sys
os.environ["KERAS_BACKEND"] = "jax"
import keras, numpy as np
from keras_transformer.training import InverseSquareRoot, MaskedAccuracy, MaskedCrossentropy, Perplexity
assert keras.backend.backend() == "jax"
logits, labels = np.load(sys.argv[1])["logits"], np.load(sys.argv[1])["labels"]
metrics = [Perplexity(), MaskedAccuracy()]
for metric in metrics:
    metric.update_state(labels, logits)
rate = InverseSquareRoot(4, hidden_dim=16)(8)
model = keras.Sequential([keras.Input((5,)), keras.layers.Embedding(11, 4), keras.layers.Dense(11)])
start = float(MaskedCrossentropy(0.1)(labels, model.predict(labels.clip(0), verbose=0)))
model.compile("sgd", MaskedCrossentropy(0.1), metrics=[Perplexity()])
fitted = model.fit(labels.clip(0), labels, verbose=0).history["loss"][0]
print(json.dumps([float(MaskedCrossentropy(0.1)(labels, logits)), *(float(m.result()) for m in metrics), float(rate),
                  start, fitted]))
"""


@pytest.mark.exhaustive
def test_under_jax(tmp_path):
    np.savez(tmp_path / "data.npz", logits=LOGITS, labels=LABELS)
    command = [sys.executable, "-c", UNDER_JAX, str(tmp_path / "data.npz")]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    loss, perplexity, accuracy, rate, start, fitted = json.loads(run.stdout.splitlines()[-1])
    assert loss == pytest.approx(expected(LABELS, LOGITS, 0.1), rel=1e-6)
    assert perplexity == pytest.approx(np.exp(expected(LABELS, LOGITS)), rel=1e-6)
    real = LABELS != -100
    assert accuracy == pytest.approx((LOGITS.argmax(-1) == LABELS)[real].mean(), rel=1e-6)
    assert rate == pytest.approx(16**-0.5 * 9**-0.5)
    assert fitted == pytest.approx(start, rel=1e-5)


@pytest.mark.parametrize("scale", [1.0, 30.0, 1e4])
def test_cross_entropy_has_the_values_and_gradients_of_float64(scale):
    random = np.random.default_rng(3)
    logits, labels = scale * random.normal(size=(2, 5, 40)), random.integers(0, 40, (2, 5))
    logits = logits.astype("float32").astype("float64")
    shifted = logits - logits.max(-1, keepdims=True)
    logarithms = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    upstream = random.normal(size=(2, 5))
    value, pullback = vjp(lambda x: cross_entropy(ops.array(labels, "int32"), x), ops.array(logits, "float32"))
    expected = -np.take_along_axis(logarithms, labels[..., None], -1)[..., 0]
    np.testing.assert_allclose(value, expected, rtol=2e-6, atol=2e-7)
    gradient = upstream[..., None] * (np.exp(logarithms) - np.eye(40)[labels])
    np.testing.assert_allclose(pullback(ops.array(upstream, "float32"))[0], gradient, atol=1e-6)
