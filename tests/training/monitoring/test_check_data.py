"""Wrong data is refused before the first step, with the place and the valid range."""

import json
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_transformer import models, tasks, training

IDS = np.array([[3, 1, 4, 1], [5, 9, 2, 6], [5, 3, 5, 0]])
LOGITS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def language_model():
    model = tasks.LanguageModel(models.Decoder(models.Size(1, 8, 2, 16), vocabulary_size=10, max_sequence_length=4))
    model.compile("adam", training.MaskedCrossentropy())
    return model


@pytest.fixture(scope="module", name="model")
def _model():
    return language_model()


def inputs(ids=IDS):
    return {"token_ids": ids, "padding_mask": ids > 0}


def changed(array, index, value, dtype=None):
    array = array.astype(dtype or array.dtype)
    array[index] = value
    return array


def refused(model, *batch):
    with pytest.raises(training.DataError) as caught:
        training.check_batch(model, *batch)
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix("The batch: ")


def dense(units, loss, activation=None, kernel="glorot_uniform"):
    layer = keras.layers.Dense(units, activation=activation, kernel_initializer=kernel)
    model = keras.Sequential([keras.Input((2,), name="features"), layer])
    model.compile("sgd", loss)
    return model


def test_good_batches_pass(model):
    training.check_batch(model, inputs(), IDS)
    training.check_batch(model, inputs(), changed(IDS, np.s_[0, 1:], -100), np.array([1.0, 0.0, 1.0]))
    empty = changed(IDS, 2, 0)  # All padding, but without labels.
    training.check_batch(model, inputs(empty), changed(IDS, 2, -100))


def test_ids_out_of_the_vocabulary(model):
    found = refused(model, inputs(changed(IDS, (1, 2), 10)), IDS)
    assert found == "'token_ids' is 10 at row 1, column 2; the ids of 'token_embedding' are 0 to 9."
    assert "'token_ids' is -1 at row 2, column 3" in refused(model, inputs() | {"token_ids": IDS - 1}, IDS)
    found = refused(model, inputs() | {"token_ids": changed(IDS, (0, 1), 1.5, "float32")}, IDS)
    assert found.startswith("'token_ids' is 1.5 at row 0, column 1; it must be an integer.")


def test_labels_that_are_no_classes(model):
    found = refused(model, inputs(), changed(IDS, (2, 0), 10))
    assert found == "label 'y' is 10 at row 2, column 0; the classes are 0 to 9, or -100 where there is no label."
    assert "label 'y' is -1 at row 2" in refused(model, inputs(), changed(IDS, (2, 0), -1))
    classifier, x = dense(3, LOGITS), np.ones((2, 2))
    assert refused(classifier, x, np.array([0, 3])) == "label 'y' is 3 at row 1; the classes are 0 to 2."
    assert "label 'y' is 0.5 at row 0" in refused(classifier, x, np.array([0.5, 1.0]))


def test_labels_of_which_none_counts(model):
    assert refused(model, inputs(), np.full_like(IDS, -100)) == "every label of 'y' is -100, so that the loss is 0."
    assert "'sample_weight' is 0" in refused(model, inputs(), IDS, np.zeros(3))


def test_rows_without_a_token(model):
    found = refused(model, inputs(changed(IDS, 1, 0)), IDS)
    assert found.startswith("row 1 of 'padding_mask' is all padding")


def test_values_that_are_not_finite():
    model = dense(1, "mse")
    x = np.ones((3, 2))
    assert refused(model, changed(x, (2, 1), np.nan), x[:, :1]) == "'x' is nan at row 2, column 1; it must be finite."
    assert "'y' is inf at row 1, column 0" in refused(model, x, changed(x[:, :1], 1, np.inf))
    assert "'sample_weight' is nan at row 0" in refused(model, x, x[:, :1], np.array([np.nan, 1, 1]))


def test_probabilities():
    x = np.ones((2, 2))
    model = dense(1, "binary_crossentropy", "sigmoid")
    training.check_batch(model, x, np.array([[0], [1]]))
    assert refused(model, x, np.array([[0], [2]])) == "label 'y' is 2 at row 1, column 0; it must be in 0 to 1."
    model = dense(3, "categorical_crossentropy", "softmax")
    training.check_batch(model, x, np.array([[0, 1, 0], [0.5, 0.25, 0.25]]))
    found = refused(model, x, np.array([[0, 1, 0], [0, 0, 0]]))
    assert found == "label 'y' sums to 0 over the classes at row 1; it must sum to 1."


def test_logits_for_a_loss_of_probabilities():
    model = dense(3, "sparse_categorical_crossentropy", kernel="ones")
    found = refused(model, np.array([[-1.0, 0.0]]), np.array([1]))
    assert found.startswith("The loss of 'y' expects probabilities, and the model's output is -1 at row 0, column 0")
    assert "from_logits=True" in found


def test_losses_of_several_outputs():
    x = keras.Input((2,))
    outputs = {name: keras.layers.Dense(3, name=name)(x) for name in ("first", "second")}
    model = keras.Model(x, outputs)
    model.compile("sgd", {"first": LOGITS, "second": "mse"})
    y = {"first": np.array([0, 1]), "second": np.full((2, 3), 7.0)}
    training.check_batch(model, np.ones((2, 2)), y)
    found = refused(model, np.ones((2, 2)), y | {"first": np.array([0, -1])})
    assert found == "label 'y['first']' is -1 at row 1; the classes are 0 to 2."


def test_images_up_to_255():
    x = np.arange(2 * 4 * 4 * 3).reshape(2, 4, 4, 3)
    layers = [keras.layers.Flatten(), keras.layers.Dense(3)]
    plain = keras.Sequential([keras.Input((4, 4, 3)), *layers])
    scaled = keras.Sequential([keras.Input((4, 4, 3)), keras.layers.Rescaling(1 / 255), *layers])
    for model in (plain, scaled):
        model.compile("sgd", LOGITS)
    with pytest.warns(UserWarning, match="'x' has integers from 0 to 95"):
        training.check_batch(plain, x, np.array([0, 1]))
    training.check_batch(scaled, x, np.array([0, 1]))
    training.check_batch(plain, x / 255, np.array([0, 1]))


def test_next_token_trainer():
    trainer = training.NextTokenTrainer(language_model(), packed=False)
    trainer.compile("adam")
    training.check_batch(trainer, inputs(), IDS)
    assert "label 'y' is 10 at row 0, column 0" in refused(trainer, inputs(), changed(IDS, (0, 0), 10))


class Weights(keras.callbacks.Callback):
    """The kernel after each step."""

    def __init__(self):
        super().__init__()
        self.kernels = []

    def on_train_batch_end(self, batch, logs=None):
        self.kernels.append(self.model.get_weights()[0])


@pytest.mark.parametrize("wrong", [0, 2])
def test_fit_stops_before_the_step(wrong):
    model, seen = dense(3, LOGITS), Weights()
    seen.kernels.append(model.get_weights()[0])
    x, y = np.ones((6, 2), "float32"), np.array([0, 1, 2, 0, 2, 1])
    options = {"batch_size": 2, "shuffle": False, "verbose": 0}
    message = f"^Batch {wrong}: label 'y' is 3 at row 0; the classes are 0 to 2.$"
    with pytest.raises(training.DataError, match=message):
        model.fit(x, changed(y, 2 * wrong, 3), callbacks=[training.CheckData(), seen], **options)
    assert len(seen.kernels) == wrong + 1
    np.testing.assert_array_equal(model.get_weights()[0], seen.kernels[-1])
    # The callback of a fit that was interrupted does not go on in the next one.
    before = training.CheckData(batches=2)
    model.fit(x, y, callbacks=[before], **options)
    assert before._seen == 2


def test_only_the_first_batches_are_checked():
    model = dense(1, "mse")
    x = np.ones((4, 2))
    y = np.array([[0.0], [0.0], [np.nan], [0.0]])
    model.fit(x, y, batch_size=1, shuffle=False, verbose=0, callbacks=[training.CheckData(batches=2)])
    with pytest.raises(training.DataError, match="Batch 2"):
        model.fit(x, y, batch_size=1, shuffle=False, verbose=0, callbacks=[training.CheckData(batches=None)])
    with pytest.raises(ValueError, match="batches"):
        training.CheckData(batches=0)


@pytest.mark.exhaustive
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="of tf.distribute")
def test_the_batches_of_several_devices_are_checked_as_wholes():
    worker = Path(__file__).with_name("replicas_worker.py")
    done = subprocess.run([sys.executable, worker], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    fitted, refused = (json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))
    assert fitted["plain"] == fitted["checked"]
    assert refused["refused"] == (
        "Batch 1: 'token_ids' is 20 at row 3, column 2; the ids of 'token_embedding' are 0 to 19."
    )
