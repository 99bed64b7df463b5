"""RetNet and RWKV against their references, and generation of every model with a state of fixed size, and of a hybrid."""

from pathlib import Path

import keras
import numpy as np
import pytest
from variants import exhaustive_but

from keras_transformer import models, tasks
from keras_transformer.attention import MultiHeadAttention
from keras_transformer.models import Stepwise
from keras_transformer.recurrence import GatedDeltaNet, KimiDeltaAttention, LightningAttention, Mamba2
from keras_transformer.utils.serialization import load_model

DATA = Path(__file__).parents[1] / "data"
SIZE = models.Size(num_layers=2, hidden_dim=16, num_heads=2, intermediate_dim=24)
VOCABULARY = 23
MODELS = {
    "retnet": lambda: models.RetNet(SIZE, VOCABULARY),
    "rwkv": lambda: models.RWKV(SIZE, VOCABULARY),
    "rwkv7": lambda: models.RWKV7(SIZE, VOCABULARY, ranks=models.RWKV7Ranks(3, 4, 5, 2), chunk_size=4),
    "s4": lambda: models.S4Model(SIZE, VOCABULARY),
    "transformer_xl": lambda: models.TransformerXL(SIZE, VOCABULARY, segment_length=4, memory_length=3),
    "recurrent_memory": lambda: models.RecurrentMemory(SIZE, VOCABULARY, segment_length=4, num_memory_tokens=2),
    "s4d": lambda: models.S4Model(SIZE, VOCABULARY, state_space="s4d", num_mixers=2),
    "hybrid": lambda: models.Decoder(
        SIZE._replace(num_layers=5),
        VOCABULARY,
        position=None,
        attention=[
            GatedDeltaNet(2, 4, chunk_size=3),
            MultiHeadAttention(2, 8),
            Mamba2(2, 8, 4, chunk_size=3),
            KimiDeltaAttention(2, 4, chunk_size=3),
            LightningAttention(2, 4, chunk_size=3),
        ],
        feedforward=["gated", None, "dense", None, "dense"],
        dropout=0.0,
    ),
}


def put(layer, *arrays):
    layer.set_weights(arrays)


def whole(model, ids):
    return np.asarray(model({"token_ids": ids, "padding_mask": np.ones(ids.shape, bool)}))


def read(model, ids, sizes):
    steps, outputs, start = Stepwise(model), [], 0
    cache = steps.init_cache(len(ids), max_length=1)
    for size in sizes:
        output, cache = steps(ids[:, start : start + size], cache, np.full(len(ids), start, "int32"))
        outputs.append(np.asarray(output))
        start += size
    return np.concatenate(outputs, axis=1)


def retnet(arrays):
    norm = keras.layers.RMSNormalization(epsilon=1e-20)  # The reference's forms agree without an epsilon alone.
    model = models.RetNet(SIZE, VOCABULARY, norm=norm, chunk_size=5)
    put(model.get_layer("token_embedding"), arrays["params/embed_tokens.weight"])
    for index in range(2):
        block, name = model.get_layer(f"decoder_block_{index}"), f"params/layers.{index}."
        block.mixer.epsilon = 1e-20
        names = [f"retention.{each}_proj" for each in ("q", "k", "v", "g", "out")]
        put(block.mixer, *(arrays[f"{name}{each}.weight"].T for each in names))
        put(block.feedforward, *(arrays[f"{name}ffn.{each}.weight"].T for each in ("fc1", "gate", "fc2")))
        put(block.mixer_residual, arrays[f"{name}retention_layer_norm.weight"])
        put(block.feedforward_residual, arrays[f"{name}final_layer_norm.weight"])
    put(model.get_layer("final_norm"), arrays["params/layer_norm.weight"])
    return model


def rwkv(arrays):
    model = models.RWKV(models.Size(2, 16, 1, 32), 19, chunk_size=5)
    put(model.get_layer("token_embedding"), arrays["params/embeddings.weight"])
    norm = [arrays[f"params/blocks.0.pre_ln.{part}"] for part in ("weight", "bias")]
    put(model.get_layer("embedding_norm"), *norm)
    put(model.get_layer("final_norm"), *(arrays[f"params/ln_out.{part}"] for part in ("weight", "bias")))
    for index in range(2):
        block, name = model.get_layer(f"decoder_block_{index}"), f"params/blocks.{index}."
        put(block.mixer_residual, *(arrays[f"{name}ln1.{part}"] for part in ("weight", "bias")))
        put(block.feedforward_residual, *(arrays[f"{name}ln2.{part}"] for part in ("weight", "bias")))
        vectors = ["time_decay", "time_first", "time_mix_key", "time_mix_value", "time_mix_receptance"]
        vectors = [arrays[f"{name}attention.{each}"].ravel() for each in vectors]
        kernels = [arrays[f"{name}attention.{each}.weight"].T for each in ("receptance", "key", "value", "output")]
        put(block.mixer, *vectors, *kernels)
        mixes = [arrays[f"{name}feed_forward.time_mix_{each}"].ravel() for each in ("key", "receptance")]
        kernels = [arrays[f"{name}feed_forward.{each}.weight"].T for each in ("key", "receptance", "value")]
        put(block.feedforward, *mixes, *kernels)
    return model


def test_logits_of_the_reference_retnet():
    arrays = np.load(DATA / "retnet_decoder.npz")
    model, ids = retnet(arrays), arrays["inputs/ids"]
    head = arrays["params/output_projection.weight"].T
    for form in ("parallel", "chunkwise", "recurrent"):
        np.testing.assert_allclose(whole(model, ids) @ head, arrays[f"outputs/{form}"], atol=1e-5)
    for sizes in ([12], [5, 1, 6], [1] * 12):
        np.testing.assert_allclose(read(model, ids, sizes) @ head, arrays["outputs/recurrent"], atol=1e-5)


def test_hidden_states_of_the_reference_rwkv():
    arrays = np.load(DATA / "rwkv4.npz")
    model, ids = rwkv(arrays), arrays["inputs/ids"]
    expected = arrays["outputs/last_hidden_state"]
    np.testing.assert_allclose(whole(model, ids), expected, atol=1e-5)
    for sizes in ([12], [7, 5], [1] * 12):
        np.testing.assert_allclose(read(model, ids, sizes), expected, atol=1e-5)


def randomized(model):
    rng = np.random.default_rng(0)
    for weight in model.weights:
        if len(weight.shape) > 1:
            weight.assign(rng.normal(0, 0.4, weight.shape))
    return model


@pytest.mark.parametrize("name", exhaustive_but(MODELS, "rwkv7"))
def test_generation_is_greedy_reading_of_the_whole(name, tmp_path):
    """Prompts of several lengths in one batch, each as if alone; after saving and loading too."""
    model = tasks.LanguageModel(randomized(MODELS[name]()))
    model.jit_compile = False
    prompts = [[3, 1, 4, 1, 5], [9, 2], [6]]
    texts = model.generate(prompts, max_new_tokens=6)
    for prompt, text in zip(prompts, texts, strict=True):
        ids = list(prompt)
        for _ in range(6):
            logits = whole(model, np.array([ids], "int32"))
            ids.append(int(logits[0, -1].argmax()))
        assert text == ids[len(prompt) :]
    assert len({tuple(text) for text in texts}) > 1
    model.save(tmp_path / "model.keras")
    loaded = load_model(tmp_path / "model.keras")
    loaded.jit_compile = False
    assert loaded.generate(prompts, max_new_tokens=6) == texts


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["retnet", "rwkv", "rwkv7", "s4", "transformer_xl", "recurrent_memory", "hybrid"])
def test_fit_learns_a_cycle(name):
    """Tokens that repeat with period three are soon foretold; on TensorFlow one model is compiled, as that takes long."""
    keras.utils.set_random_seed(0)
    model = tasks.LanguageModel(MODELS[name]())
    ids = np.tile([[1, 2, 3], [4, 5, 6]], (4, 5)).astype("int32")
    inputs = {"token_ids": ids[:, :-1], "padding_mask": np.ones(ids[:, :-1].shape, bool)}
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    is_compiled = name == "retnet" or keras.backend.backend() == "jax"
    model.compile(keras.optimizers.Adam(0.02), loss=loss, jit_compile=is_compiled)
    history = model.fit(inputs, ids[:, 1:], epochs=25, verbose=0).history["loss"]
    assert history[-1] < 0.3 * history[0]
