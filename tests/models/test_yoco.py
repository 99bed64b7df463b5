"""YOCO: whole = chunked = stepwise, one pair of keys and values, and a prompt that is read half-way."""

import math

import keras
import numpy as np
import pytest
from variants import exhaustive_but

from keras_transformer import models, tasks
from keras_transformer.attention import MultiHeadAttention
from keras_transformer.generation import GenerationError
from keras_transformer.models import PrefillExit, Stepwise
from keras_transformer.utils.serialization import load_model

SIZE = models.Size(num_layers=4, hidden_dim=16, num_heads=2, intermediate_dim=24)
VOCABULARY = 23
MODELS = {
    "local": lambda: models.YOCO(SIZE, VOCABULARY, window=4, num_key_value_heads=1),
    "retention": lambda: models.YOCO(SIZE, VOCABULARY, self_decoder="retention"),
    "linear": lambda: models.YOCO(
        SIZE,
        VOCABULARY,
        self_decoder=MultiHeadAttention(2, 8, mechanism="linear"),
        position="alibi",
        residual="sandwich",
    ),
}


def randomized(model):
    rng = np.random.default_rng(0)
    for weight in model.weights:
        if len(weight.shape) > 1:
            weight.assign(rng.normal(0, 0.4, weight.shape))
    return model


def token_ids(batch_size, length):
    return np.random.default_rng(1).integers(0, VOCABULARY, (batch_size, length)).astype("int32")


def whole(model, ids, mask=None):
    return np.asarray(model({"token_ids": ids, "padding_mask": np.ones(ids.shape, bool) if mask is None else mask}))


def read(steps, ids, sizes):
    cache, outputs, start = steps.init_cache(len(ids), ids.shape[1]), [], 0
    for size in sizes:
        output, cache = steps(ids[:, start : start + size], cache, np.full(len(ids), start, "int32"))
        outputs.append(np.asarray(output))
        start += size
    return np.concatenate(outputs, axis=1)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("length", exhaustive_but([1, 9, 100], 9))
def test_whole_is_chunked_is_stepwise(name, length):
    model, ids = randomized(MODELS[name]()), token_ids(2, length)
    expected, steps = whole(model, ids), Stepwise(model)
    # With these weights, embeddings that differ in their last bit make twice this difference: of the output, not of 1.
    tolerance = 1e-5 * np.abs(expected).max()
    for size in (7, 64) if length > 9 else (1, 7):
        sizes = [size] * (length // size) + [length % size] * (length % size > 0)
        np.testing.assert_allclose(read(steps, ids, sizes), expected, atol=tolerance)


@pytest.mark.parametrize("name", MODELS)
def test_causality_and_padding(name):
    model, ids = randomized(MODELS[name]()), token_ids(2, 9)
    changed, mask = ids.copy(), np.ones(ids.shape, bool)
    changed[:, 6:] = (changed[:, 6:] + 1) % VOCABULARY
    mask[:, 6:] = False
    before, after = whole(model, ids), whole(model, changed)
    np.testing.assert_allclose(before[:, :6], after[:, :6], atol=1e-5)
    assert np.abs(before - after)[:, 6:].max() > 1e-2
    for padded in (ids, changed):
        np.testing.assert_allclose(whole(model, padded, mask)[:, :6], before[:, :6], atol=1e-5)


def test_the_first_token_is_read_by_the_last_through_the_shared_pair_alone():
    """Two windows of 3 reach back 4 tokens: what the last of 9 knows of the first comes through the cross-decoder."""
    model, ids = randomized(models.YOCO(SIZE, VOCABULARY, window=3)), token_ids(1, 9)
    changed = ids.copy()
    changed[:, 0] += 1
    tapped = keras.Model(model.input, model.get_layer("prefill_exit").output)
    assert np.abs(whole(tapped, ids) - whole(tapped, changed))[:, 5:].max() == 0
    assert np.abs(whole(model, ids) - whole(model, changed))[:, 8].max() > 1e-3


@pytest.mark.parametrize("name", MODELS)
def test_the_cache_is_one_pair_and_states_of_fixed_size(name):
    steps = Stepwise(MODELS[name]())
    short, long = (steps.init_cache(1, length) for length in (100, 1000))
    grows = {key for key in short if short[key].shape != long[key].shape}
    assert grows == {"shared_key_value_key", "shared_key_value_value"}
    assert {key.rpartition("block_")[0] for key in set(short) - grows} == {"self_decoder_"}


@pytest.mark.parametrize("name", MODELS)
def test_a_prompt_is_read_half_way_to_the_same_logits(name):
    model, ids, lengths = randomized(MODELS[name]()), token_ids(3, 9), np.array([9, 3, 1], "int32")
    steps, expected = Stepwise(model), whole(model, ids)
    assert steps.has_prefill_exit
    assert not Stepwise(models.Decoder(SIZE, VOCABULARY)).has_prefill_exit
    whole_prompt, cache = steps(ids, steps.init_cache(3, 12), 0, lengths)
    last, same_cache = steps(ids, steps.init_cache(3, 12), 0, lengths, last_only=True)
    assert last.shape == (3, 1, 16)
    rows = np.arange(3)
    np.testing.assert_allclose(np.asarray(last)[:, 0], expected[rows, lengths - 1], atol=1e-5)
    np.testing.assert_allclose(np.asarray(whole_prompt)[rows, lengths - 1], expected[rows, lengths - 1], atol=1e-5)
    for key, slab in cache.items():
        np.testing.assert_array_equal(slab, same_cache[key], err_msg=key)
    alone, _ = steps(ids, steps.init_cache(3, 12), 0, last_only=True)
    np.testing.assert_allclose(np.asarray(alone)[:, 0], expected[:, -1], atol=1e-5)


def products(function, *arguments):
    """In a traced graph, how many weights are multiplied with so many rows each: dict of rows to weights."""
    import tensorflow as tf

    graph = tf.function(function, autograph=False).get_concrete_function(*arguments).graph
    found = {}
    for op in graph.get_operations():
        if op.type == "MatMul" and tuple(op.inputs[1].shape) != (8, 8):  # That turns heads by a quarter.
            rows, columns = op.outputs[0].shape
            found[rows] = found.get(rows, 0) + op.inputs[0].shape[1] * columns
    return found


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="counts TensorFlow graphs")
def test_the_cross_decoder_sees_one_token_of_each_prompt():
    """Counted in the graphs: a prompt of 13 tokens costs the cross-decoder what one new token costs."""
    model = tasks.LanguageModel(models.YOCO(SIZE, VOCABULARY, window=4))
    kernels = {}
    for weight in model.weights:
        if weight.name == "kernel":
            half = "cross" if weight.path.startswith("cross") else "self"
            kernels[half] = kernels.get(half, 0) + math.prod(weight.shape)
    head, cache = VOCABULARY * 16, model.init_cache(2, 64)
    ids, lengths = token_ids(2, 13), np.array([13, 5], "int32")
    assert products(model.prefill, ids, lengths, cache) == {26: kernels["self"], 2: kernels["cross"] + head}
    assert products(model.decode_step, ids[:, :1], cache, lengths) == {2: sum(kernels.values()) + head}
    assert products(model.decode_step, ids, cache, lengths) == {26: sum(kernels.values()) + head}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", MODELS)
def test_generation_is_greedy_reading_of_the_whole(name, tmp_path):
    """Prompts of several lengths in one batch, each as if alone; after saving and loading too."""
    model = tasks.LanguageModel(randomized(MODELS[name]()))
    model.jit_compile = False
    prompts = [[3, 1, 4, 1, 5], [9, 2], [6]]
    texts = model.generate(prompts, max_new_tokens=6)
    for prompt, text in zip(prompts, texts, strict=True):
        ids = list(prompt)
        for _ in range(6):
            ids.append(int(whole(model, np.array([ids], "int32"))[0, -1].argmax()))
        assert text == ids[len(prompt) :]
    assert len({tuple(text) for text in texts}) > 1
    model.save(tmp_path / "model.keras")
    loaded = load_model(tmp_path / "model.keras")
    loaded.jit_compile = False
    assert loaded.generate(prompts, max_new_tokens=6) == texts
    with pytest.raises(GenerationError, match="half-way"):
        model.generate(prompts, sampler="contrastive", max_new_tokens=6)


@pytest.mark.exhaustive
def test_fit_learns_a_cycle():
    keras.utils.set_random_seed(0)
    model = tasks.LanguageModel(MODELS["local"]())
    ids = np.tile([[1, 2, 3], [4, 5, 6]], (4, 5)).astype("int32")
    inputs = {"token_ids": ids[:, :-1], "padding_mask": np.ones(ids[:, :-1].shape, bool)}
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.02), loss=loss, jit_compile=False)
    history = model.fit(inputs, ids[:, 1:], epochs=25, verbose=0).history["loss"]
    assert history[-1] < 0.3 * history[0]


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="must be even"):
        models.YOCO(models.Size(3, 16, 2, 24), VOCABULARY)
    with pytest.raises(ValueError, match="'local', 'retention'|local, retention"):
        models.YOCO(SIZE, VOCABULARY, self_decoder="softmaxx")
    model = models.Decoder(SIZE, VOCABULARY)
    early = keras.Model(model.input, PrefillExit()(model.get_layer("embedding_dropout").output))
    blocks = [layer for layer in model.layers if layer.name.startswith("decoder_block")]
    with pytest.raises(ValueError, match="follows a PrefillExit"):
        Stepwise(keras.Model(early.input, blocks[0](early.output)))
