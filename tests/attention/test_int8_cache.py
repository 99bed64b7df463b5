"""A cache of keys and values in int8: what is stored, what it costs in accuracy, and which models cannot have it."""

import keras
import numpy as np
import pytest

from keras_transformer import models, tasks
from keras_transformer.attention import MultiHeadAttention
from keras_transformer.attention.cache.dense import init_dense_cache, read_dense_cache, update_dense_cache
from keras_transformer.generation import Engine
from keras_transformer.positions import Rotary

WIDTH, WORDS, LENGTH = 48, 200, 40


@pytest.fixture
def model():
    keras.utils.set_random_seed(0)
    backbone = models.Llama(models.Size(3, WIDTH, 6, 96), WORDS, num_key_value_heads=2, position=Rotary(1e4, "halves"))
    model = tasks.LanguageModel(backbone)
    random = np.random.default_rng(0)
    for variable in model.trainable_variables:
        variable.assign(random.normal(0, 0.15, variable.shape))
    return model


def test_each_row_is_rounded_to_its_own_scale():
    cache = init_dense_cache(2, 3, 1, 4, 2, "int8")
    key = np.array([[[[1.27, -0.5, 0.004, 0.006]]], [[[0.0, 0.0, 0.0, 0.0]]]], "float32")
    value = np.array([[[[-254.0, 100.9]]], [[[1e-3, 4e-4]]]], "float32")
    cache = update_dense_cache(cache, key, value, np.array([2, 0], "int32"))
    np.testing.assert_array_equal(cache["key"][0, 0], [[0] * 4, [0] * 4, [127, -50, 0, 1]])
    np.testing.assert_array_equal(np.asarray(cache["value"])[:, 0, [2, 0]], [[[-127, 50], [0, 0]], [[0, 0], [127, 51]]])
    np.testing.assert_allclose(cache["key_scale"][:, 0, :, 0], [[0, 0, 0.01], [0, 0, 0]], rtol=1e-6)
    keys, values = map(np.asarray, read_dense_cache(cache, "float32"))
    np.testing.assert_allclose(keys[0, 2, 0], [1.27, -0.5, 0, 0.01], rtol=1e-6)
    np.testing.assert_allclose(values[:, [2, 0], 0], [[[-254, 100], [0, 0]], [[0, 0], [1e-3, 51e-3 / 127]]], rtol=1e-6)


def steps(model, tokens):
    """Logits of the second half of a text, read after the first."""
    half = np.full(2, LENGTH // 2, "int32")
    _, _, cache = model.prefill(tokens[:, : LENGTH // 2], half, model.init_cache(2, LENGTH))
    logits, _, cache = model.decode_step(tokens[:, LENGTH // 2 :], cache, half)
    return keras.ops.convert_to_numpy(logits), cache


def test_a_model_reads_what_it_rounded(model):
    tokens = np.random.default_rng(1).integers(0, WORDS, (2, LENGTH)).astype("int32")
    exact, floats = steps(model, tokens)
    model.cache_dtype = "int8"
    found, cache = steps(model, tokens)
    # A step of a row is 1/127 of its largest value; over three blocks the errors of many tokens average out.
    assert 1e-4 < np.abs(found - exact).max() / np.abs(exact).max() < 0.01
    name = "decoder_block_0_key"  # The first block's keys do not depend on what was rounded before.
    levels, scale = (keras.ops.convert_to_numpy(cache[each]) for each in (name, f"{name}_scale"))
    assert levels.dtype == np.int8
    expected = keras.ops.convert_to_numpy(floats[name])
    assert np.abs(levels * scale - expected).max() <= 0.5001 * scale.max()


@pytest.mark.exhaustive
def test_generation_and_engine_agree(model):
    model.cache_dtype = "int8"
    prompts = [[3, 1, 4, 1, 5], [9, 2, 6]]
    expected = model.generate(prompts, max_new_tokens=12)
    with Engine(model, num_blocks=16, block_size=8, max_batch_size=2) as engine:
        assert [engine.submit(each, max_new_tokens=12).result() for each in prompts] == expected


def test_is_saved_and_can_be_taken_back(model, tmp_path):
    model.cache_dtype = "int8"
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.cache_dtype == "int8"
    assert "decoder_block_0_key_scale" in again.init_cache(1, 2)
    again.cache_dtype = None
    assert "decoder_block_0_key_scale" not in again.init_cache(1, 2)


def test_refuses_states_and_other_types(model):
    with pytest.raises(ValueError, match="'float16'"):
        model.cache_dtype = "float16"
    with pytest.raises(ValueError, match="LinearAttention"):
        MultiHeadAttention(2, 4, mechanism="linear").init_cache(1, 4, "int8")
    recurrent = models.RetNet(models.Size(1, 8, 1, 16), WORDS)
    with pytest.raises(ValueError, match="is a state"):
        tasks.LanguageModel(recurrent, cache_dtype="int8")
