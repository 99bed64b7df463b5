"""The steps of a task of KerasHub, with rows at positions of their own, are those of KerasHub on each row."""

import importlib
import pathlib

import keras
import numpy as np
import pytest
from hub_families import DRAFTS, FAMILIES, WITHOUT_CACHE_FOR_TEXTS
from variants import exhaustive_but

from keras_transformer.export import InvalidModelError

pytestmark = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the exporter's own process")
NAMES = exhaustive_but(FAMILIES, "MistralCausalLM")


@pytest.fixture
def tasks(monkeypatch):
    pytest.importorskip("keras_hub")
    monkeypatch.syspath_prepend(pathlib.Path(__file__).parents[3] / "benchmarks")
    return importlib.import_module("keras_hub_tasks")


def language_model(task):
    from keras_transformer.export.spec.keras_hub.language_model import language_model_of

    return language_model_of(task)


@pytest.mark.parametrize("name", NAMES)
def test_rows_at_other_positions_are_computed_as_if_alone(tasks, name):
    model = language_model(tasks.build(name))
    random = np.random.default_rng(0)
    tokens = random.integers(0, model.vocabulary_size, (3, 6)).astype("int32")
    lengths = np.array([6, 2, 4], "int32")
    own = model.own
    logits, hidden, cache = model.prefill(tokens, lengths, model.init_cache(3, 11))
    expected, expected_hidden, expected_cache = own.prefill(tokens, lengths, model.init_cache(3, 11))
    np.testing.assert_allclose(logits, expected, atol=1e-5 * np.abs(expected).max())
    np.testing.assert_allclose(hidden, expected_hidden, atol=1e-5 * np.abs(expected_hidden).max())
    for count in (1, 3):
        new = random.integers(0, model.vocabulary_size, (3, count)).astype("int32")
        logits, _, after = model.decode_step(new, cache, lengths)
        expected, _, expected_after = own.decode_step(new, expected_cache, lengths)
        assert logits.shape == (3, count, model.vocabulary_size)
        np.testing.assert_allclose(logits, expected, atol=1e-5 * np.abs(expected).max())
        for each, tensor in after.items():
            np.testing.assert_allclose(tensor, expected_after[each], atol=1e-5)
            changed = np.asarray(tensor) != np.asarray(cache[each])
            slots = np.flatnonzero(changed.any(axis=(0, *range(2, changed.ndim)))) if changed.ndim > 2 else []
            assert len(slots), each


def test_the_cache_of_each_layer_is_tensors_of_its_own(tasks):
    model = language_model(tasks.build("GPT2CausalLM"))
    cache = model.init_cache(2, 9)
    assert list(cache) == ["layer_0_key", "layer_0_value", "layer_1_key", "layer_1_value"]
    assert {tuple(each.shape) for each in cache.values()} == {(2, 9, 4, 8)}
    assert model.max_length == 128


def test_start_and_end_tokens_are_those_of_its_generate(tasks):
    task = tasks.build("Llama3CausalLM")
    model = language_model(task)
    tokenizer = task.preprocessor.tokenizer
    assert model.start_id == tokenizer.start_token_id
    assert model.end_id == (tokenizer.end_token_id, tokenizer.end_token2_id)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", WITHOUT_CACHE_FOR_TEXTS)
def test_a_task_without_a_cache_for_texts_is_refused_with_the_reason(tasks, name):
    try:
        task = tasks.build(name)
    except Exception as error:  # Some cannot be built without parts for images.
        pytest.skip(f"{name}: {error}")
    with pytest.raises(InvalidModelError, match=WITHOUT_CACHE_FOR_TEXTS[name]):
        language_model(task)


def test_every_class_of_the_installed_keras_hub_is_listed(tasks):
    assert set(tasks.classes()) == {*FAMILIES, *WITHOUT_CACHE_FOR_TEXTS, *DRAFTS}
