"""Distillation: the losses of the papers in float64, and a student that is an ordinary model afterwards."""

import os
import subprocess
import sys

import keras
import numpy as np
import pytest
from scipy.special import log_softmax, softmax

from keras_transformer import load_model, models, tasks, training
from keras_transformer.attention.maps import attention_maps
from keras_transformer.quantization import WeightScheme
from keras_transformer.training import AttentionMaps, Distillation, HiddenStates, SoftLogits

IDS = np.random.default_rng(0).integers(0, 20, (6, 5)).astype("int32")
INPUTS = {"token_ids": IDS, "padding_mask": np.arange(5) < np.array([[5], [3], [4], [1], [5], [2]])}
LABELS = np.array([0, 1, 2, 0, 1, 2])
GENERATOR = np.random.default_rng(1)
STUDENT, TEACHER = GENERATOR.normal(size=(2, 6, 5, 7))


def language_model(layers, width, heads, seed):
    keras.utils.set_random_seed(seed)
    backbone = models.Decoder(models.Size(layers, width, heads, 32), vocabulary_size=20, max_sequence_length=8)
    return tasks.LanguageModel(backbone)


def classifier(layers, width, heads, seed, activation=None):
    keras.utils.set_random_seed(seed)
    backbone = models.Encoder(models.Size(layers, width, heads, 32), vocabulary_size=20, max_sequence_length=8)
    return tasks.SequenceClassifier(backbone, 3, activation=activation)


def mean(losses, mask):
    return losses.mean() if mask is None else losses[mask].mean()


@pytest.mark.parametrize("mask", [None, INPUTS["padding_mask"]], ids=["all", "masked"])
def test_soft_logits(mask):
    found = SoftLogits(weight=0.5, temperature=3.0).loss(STUDENT, TEACHER, mask)
    targets = softmax(TEACHER / 3, -1)
    divergence = (targets * (log_softmax(TEACHER / 3, -1) - log_softmax(STUDENT / 3, -1))).sum(-1)
    assert float(found) == pytest.approx(0.5 * 9 * mean(divergence, mask), rel=1e-5)
    assert float(SoftLogits().loss(TEACHER, TEACHER, mask)) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("mask", [None, INPUTS["padding_mask"]], ids=["all", "masked"])
def test_hidden_states(mask):
    found = HiddenStates({"a": "b"}, weight=2.0).loss(STUDENT, TEACHER, mask)
    assert float(found) == pytest.approx(2 * mean(((STUDENT - TEACHER) ** 2).mean(-1), mask), rel=1e-5)


@pytest.mark.parametrize("heads", [2, 3])
@pytest.mark.parametrize("mask", [None, INPUTS["padding_mask"]], ids=["all", "masked"])
def test_attention_maps(mask, heads):
    """With equal numbers of heads head by head, else their means; masked keys are 0 on both sides."""
    student, teacher = (
        softmax(GENERATOR.normal(size=(6, 2, 5, 5)), -1),
        softmax(GENERATOR.normal(size=(6, heads, 5, 5)), -1),
    )
    for x in (student, teacher):
        x[..., -1] = 0
        x /= x.sum(-1, keepdims=True)
    found = AttentionMaps({"a": "b"}, weight=3.0).loss(student, teacher, mask)
    if heads == 3:
        student, teacher = student.mean(1, keepdims=True), teacher.mean(1, keepdims=True)
    p, q = teacher[..., :-1], student[..., :-1]
    divergence = (p * np.log(p / q)).sum(-1).mean(1)
    assert float(found) == pytest.approx(3 * mean(divergence, mask), rel=1e-5)


def test_the_loss_of_a_step_is_the_sum_of_its_parts():
    student, teacher = language_model(1, 16, 2, 1), language_model(2, 32, 4, 2)
    trainer = Distillation(
        student,
        teacher,
        logits=SoftLogits(0.25, 2.0),
        hidden_states=HiddenStates({"decoder_block_0": "decoder_block_1", "token_embedding": "token_embedding"}, 0.5),
        attention_maps=AttentionMaps({"decoder_block_0": "decoder_block_1/self_attention"}, 2.0),
        label_weight=0.75,
    )
    labels = np.roll(IDS, -1, 1)
    loss = training.MaskedCrossentropy()
    trainer.compile(keras.optimizers.SGD(0.0), loss)
    found = trainer.fit(INPUTS, labels, batch_size=6, verbose=0).history["loss"][0]
    mask = INPUTS["padding_mask"]

    def hidden(model, name):
        return np.asarray(keras.Model(model.input, model.get_layer(name).output)(INPUTS)).astype("float64")

    ours, theirs = student.predict(INPUTS, verbose=0), teacher.predict(INPUTS, verbose=0)
    expected = float(SoftLogits(0.25, 2.0).loss(ours, theirs, mask)) + 0.75 * float(loss(labels, ours))
    for index, pair in enumerate([("decoder_block_0", "decoder_block_1"), ("token_embedding",) * 2]):
        kernel = trainer._maps[index].kernel.numpy()
        assert kernel.shape == (16, 32)
        difference = hidden(student, pair[0]) @ kernel - hidden(teacher, pair[1])
        expected += 0.5 * (difference**2).mean(-1)[mask].mean() / 2
    (p,), (q,) = (attention_maps(each, [-1])(INPUTS).values() for each in (teacher, student))
    expected += float(AttentionMaps({"a": "b"}, 2.0).loss(q, p, mask))
    assert found == pytest.approx(expected, rel=1e-4)
    # Evaluation is that of the student.
    assert trainer.evaluate(INPUTS, labels, batch_size=6, verbose=0) == pytest.approx(
        float(loss(labels, ours)), rel=1e-5
    )
    np.testing.assert_allclose(trainer.predict(INPUTS, verbose=0), ours, atol=1e-6)


@pytest.mark.exhaustive
def test_a_student_learns_without_labels_and_the_teacher_stays(tmp_path):
    student, teacher = classifier(1, 16, 2, 1), classifier(2, 32, 4, 2)
    before = [weight.numpy() for weight in teacher.weights]
    flags = [weight.trainable for weight in teacher.weights]
    pairs = {"encoder_block_0": "encoder_block_1"}
    trainer = Distillation(
        student, teacher, hidden_states=HiddenStates(pairs), attention_maps=AttentionMaps(pairs), name="trainer"
    )
    trainer.compile(keras.optimizers.Adam(0.03), run_eagerly=True)
    losses = trainer.fit(INPUTS, epochs=15, batch_size=6, verbose=0).history["loss"]
    assert losses[-1] < losses[0] / 3
    for weight, value, flag in zip(teacher.weights, before, flags, strict=True):
        np.testing.assert_array_equal(weight, value)
        assert weight.trainable == flag
    own = {id(weight) for weight in trainer.weights}
    assert not own & {id(weight) for weight in teacher.weights}
    assert len(trainer.trainable_weights) == len(student.trainable_weights) + 1
    student.save(tmp_path / "student.keras")
    loaded = load_model(tmp_path / "student.keras")
    np.testing.assert_array_equal(loaded.predict(INPUTS, verbose=0), student.predict(INPUTS, verbose=0))


def test_metrics_are_those_of_the_student():
    student, teacher = classifier(1, 16, 2, 1), classifier(1, 16, 2, 2)
    trainer = Distillation(student, teacher, logits=SoftLogits(temperature=1.0))
    trainer.compile(keras.optimizers.SGD(0.0), training.MaskedCrossentropy(), metrics=["accuracy"])
    history = trainer.fit(INPUTS, LABELS, validation_data=(INPUTS, LABELS), batch_size=6, verbose=0).history
    accuracy = (student.predict(INPUTS, verbose=0).argmax(-1) == LABELS).mean()
    assert history["accuracy"][0] == history["val_accuracy"][0] == pytest.approx(accuracy)


def test_with_quantization_and_mixed_precision():
    teacher = classifier(1, 64, 2, 2)
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        student = classifier(1, 64, 2, 1)
    finally:
        keras.config.set_dtype_policy(policy)
    student = training.quantization_aware(student, WeightScheme(2, None), activations=8)
    pairs = {"encoder_block_0": "encoder_block_0"}
    trainer = Distillation(student, teacher, hidden_states=HiddenStates(pairs), attention_maps=AttentionMaps(pairs))
    trainer.compile(keras.optimizers.Adam(0.01), training.MaskedCrossentropy(), run_eagerly=True)
    losses = trainer.fit(INPUTS, LABELS, epochs=3, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    assert len(training.learned_weights(student)) == 6  # The table of 20 tokens is small.


def test_errors():
    student, teacher = classifier(1, 16, 2, 1), classifier(2, 32, 4, 2)
    for make, message in [
        (lambda: SoftLogits(temperature=0), "temperature must be positive"),
        (lambda: HiddenStates({}), "needs a layer of the student"),
        (lambda: AttentionMaps({"a": "b"}, weight=-1), "weight must be positive"),
        (lambda: Distillation(student, student), "its own teacher"),
        (lambda: Distillation(student, teacher, logits=None), "needs logits, hidden_states or attention_maps"),
        (lambda: Distillation(student, teacher, label_weight=-1), "label_weight must not be negative"),
        (
            lambda: Distillation(student, teacher, hidden_states=HiddenStates({"x": "y"})),
            "no layer 'x'. Its layers: .*encoder_block_0",
        ),
        (lambda: Distillation(student, teacher, attention_maps=AttentionMaps({"x": "y"})), "No attention layer 'x'"),
        (lambda: Distillation(student, classifier(1, 16, 2, 1, "softmax")), "returns probabilities"),
        (lambda: Distillation(student, language_model(1, 16, 2, 1)), r"\(3,\), those of the teacher \(None, 20\)"),
    ]:
        with pytest.raises(ValueError, match=message):
            make()


UNDER_JAX = """
import os, sys
os.environ["KERAS_BACKEND"] = "jax"
import keras, numpy as np
from keras_transformer import load_model
from keras_transformer.training import AttentionMaps, Distillation, HiddenStates, SoftLogits
student, teacher = load_model(sys.argv[1]), load_model(sys.argv[2])
assert keras.backend.backend() == "jax"
ids = np.load(sys.argv[3])
inputs = {"token_ids": ids, "padding_mask": ids >= 0}
pairs = {"decoder_block_0": "decoder_block_0"}
trainer = Distillation(student, teacher, hidden_states=HiddenStates(pairs), attention_maps=AttentionMaps(pairs))
trainer._maps[0].kernel.assign(np.full((16, 32), 0.1))
trainer.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
print(trainer.fit(inputs, ids, epochs=2, batch_size=6, verbose=0).history["loss"][-1])
"""


@pytest.mark.exhaustive
def test_under_jax(tmp_path):
    paths = [str(tmp_path / name) for name in ("student.keras", "teacher.keras", "ids.npy")]
    student, teacher = language_model(1, 16, 2, 1), language_model(1, 32, 4, 2)
    student.save(paths[0])
    teacher.save(paths[1])
    np.save(paths[2], IDS)
    pairs = {"decoder_block_0": "decoder_block_0"}
    trainer = Distillation(student, teacher, hidden_states=HiddenStates(pairs), attention_maps=AttentionMaps(pairs))
    trainer._maps[0].kernel.assign(np.full((16, 32), 0.1))
    trainer.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    inputs = {"token_ids": IDS, "padding_mask": IDS >= 0}
    loss = trainer.fit(inputs, IDS, epochs=2, batch_size=6, verbose=0).history["loss"][-1]
    run = subprocess.run(
        [sys.executable, "-c", UNDER_JAX, *paths], capture_output=True, text=True, check=False, env=os.environ
    )
    assert run.returncode == 0, run.stderr
    assert float(run.stdout.split()[-1]) == pytest.approx(loss, rel=1e-4)
