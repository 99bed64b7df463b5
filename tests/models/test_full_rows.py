"""Rows without padding: a padding mask of None, or left out, and models that need one."""

import keras
import numpy as np
import pytest

from keras_transformer import data, models, tasks, training
from keras_transformer.utils.serialization import load_model

SIZE, WORDS, LENGTH = models.Size(1, 8, 2, 16), 20, 6


def language_model():
    keras.utils.set_random_seed(0)
    model = tasks.LanguageModel(models.Decoder(SIZE, WORDS, max_sequence_length=LENGTH))
    model.compile(keras.optimizers.SGD(0.5), training.MaskedCrossentropy(), jit_compile=False)
    return model


def rows():
    ids = np.random.default_rng(0).integers(1, WORDS, (4, LENGTH + 1))
    return ids[:, :-1], ids[:, 1:]


def trained(inputs):
    model = language_model()
    model.fit(inputs, rows()[1], batch_size=2, shuffle=False, verbose=0)
    return model


def test_training_without_a_mask_is_that_with_a_mask_of_full_rows():
    token_ids, _ = rows()
    full = trained({"token_ids": token_ids, "padding_mask": token_ids > 0}).get_weights()
    for inputs in ({"token_ids": token_ids, "padding_mask": None}, {"token_ids": token_ids}, token_ids):
        for got, expected in zip(trained(inputs).get_weights(), full, strict=True):
            np.testing.assert_allclose(got, expected, atol=1e-6)


def test_windows_of_a_text_have_no_mask():
    batches = data.language_model_batches(np.arange(100) % WORDS, LENGTH, 2, steps_per_epoch=3)
    assert sorted(batches[0][0]) == ["token_ids"]
    losses = [
        language_model().fit(each, shuffle=False, verbose=0).history["loss"][0] for each in (batches, batches.epoch())
    ]
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)


def test_saved_and_loaded_models_take_none(tmp_path):
    token_ids, _ = rows()
    model = trained(token_ids)
    model.save(tmp_path / "model.keras")
    loaded = load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded.predict(token_ids, verbose=0), model.predict(token_ids, verbose=0))


def test_the_trainer_of_packed_rows_takes_rows_without_a_mask():
    inputs, labels = data.pack([[3, 1, 4], [1, 5, 9, 2]], LENGTH, 2, shuffle=False)[0]
    trainer = training.NextTokenTrainer(language_model(), chunk_size=4)
    trainer.compile("sgd", jit_compile=False)
    with_mask = trainer.evaluate(inputs, labels, verbose=0)
    without = {name: array for name, array in inputs.items() if name != "padding_mask"}
    assert trainer.evaluate(without, labels, verbose=0) == pytest.approx(with_mask, abs=1e-6)


def test_positions_of_a_mask_need_one():
    encoder = models.RoBERTa(SIZE, WORDS, max_sequence_length=LENGTH, positions_from_mask=True)
    with pytest.raises(ValueError, match="padding_mask"):
        encoder({"token_ids": rows()[0], "padding_mask": None})


def test_required_inputs_are_still_missed():
    with pytest.raises(ValueError, match="token_ids"):
        language_model()({"padding_mask": np.ones((1, 3), bool)})
