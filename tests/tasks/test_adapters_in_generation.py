"""Generation after the variables of a model change: compiled functions must not keep the old ones."""

import os
import subprocess
import sys

import keras
import numpy as np
import pytest
from variants import exhaustive_but

from keras_transformer import models, tasks
from keras_transformer.generation import BeamSearch, Engine
from keras_transformer.retrieval import MeanEmbedding
from keras_transformer.tasks.decoding.paged_steps import PagedSteps
from keras_transformer.training import add_lora, load_lora, merge_lora, save_lora

pytestmark = pytest.mark.slow

PROMPT = list(range(1, 12))


def language_model(jit_compile=False):
    model = tasks.LanguageModel(models.Decoder(models.Size(1, 16, 2, 32), 40, max_sequence_length=32), end_id=0)
    rng = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(weight + 0.4 * rng.normal(size=weight.shape))
    model.compile(jit_compile=jit_compile)
    return model


def add_adapters(model, seed):
    add_lora(model, rank=2, layers="attention|feedforward")
    rng = np.random.default_rng(seed)
    for weight in model.trainable_weights:
        weight.assign(0.8 * rng.normal(size=weight.shape))


def logits_of(model, tokens):
    inputs = {"token_ids": np.array([tokens]), "padding_mask": np.ones((1, len(tokens)), bool)}
    return keras.ops.convert_to_numpy(model(inputs))[0, -1]


def decode_eagerly(model):
    """Greedy decoding without a cache and without compilation."""
    tokens = list(PROMPT)
    while len(tokens) < len(PROMPT) + 8:
        tokens.append(int(np.argmax(logits_of(model, tokens))))
        if tokens[-1] == 0:
            return tokens[len(PROMPT) : -1]
    return tokens[len(PROMPT) :]


def check_changes(model, run, expected, path):
    """`run` gives what the model computes now, after each change of its variables: add, merge, add again, merge, load.

    Args:
        run: function that decodes with compiled functions, made before the first change.
        expected: function that computes the same without them.
    """
    found = [run()]
    np.testing.assert_allclose(found[-1], expected(), atol=1e-4)
    for seed in (1, 2):
        add_adapters(model, seed)
        found.append(run())
        np.testing.assert_allclose(found[-1], expected(), atol=1e-4)
        if seed == 2:
            save_lora(model, path)
            kernels = {layer.path: np.array(layer._kernel) for layer in adapted_layers(model)}
        merge_lora(model)
        np.testing.assert_allclose(run(), found[-1], atol=1e-4)
    for layer in model._flatten_layers():
        if layer.path in kernels:
            layer._kernel.assign(kernels[layer.path])
    load_lora(model, path)
    np.testing.assert_allclose(run(), found[-1], atol=1e-4)
    for one, other in ((0, 1), (1, 2), (0, 2)):
        assert (
            np.shape(found[one]) != np.shape(found[other]) or np.abs(np.subtract(found[one], found[other])).max() > 0.1
        )


def adapted_layers(model):
    return [layer for layer in model._flatten_layers() if getattr(layer, "lora_enabled", False)]


@pytest.mark.exhaustive
@pytest.mark.parametrize("sampler", ["greedy", BeamSearch(num_beams=1)], ids=["graph", "steps"])
def test_generate(sampler, tmp_path):
    """The whole loop as one graph, and a search that calls each step; a beam of one is greedy."""
    model = language_model()
    generator = model.generator()
    check_changes(
        model,
        lambda: generator.generate(PROMPT, max_new_tokens=8, sampler=sampler),
        lambda: decode_eagerly(model),
        tmp_path / "lora.safetensors",
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize("jit_compile", exhaustive_but([False, True], True))
def test_paged_steps(jit_compile, tmp_path):
    model = language_model(jit_compile)
    steps = PagedSteps(model, num_blocks=8, block_size=4, max_batch_size=1, chunk_size=11)
    check_changes(
        model,
        lambda: steps.step([PROMPT], [[3, 1, 4]], [0])[0],
        lambda: logits_of(model, PROMPT),
        tmp_path / "lora.safetensors",
    )


def test_engine(tmp_path):
    """Blocks that requests share are read again: they hold what the model before the change computed."""
    model = language_model()
    with Engine(model, max_batch_size=2, num_blocks=16, block_size=4, chunk_size=6) as engine:

        def run():
            first, second = (engine.submit(PROMPT, max_new_tokens=8).result(120) for _ in range(2))
            assert first == second
            return second

        check_changes(model, run, lambda: decode_eagerly(model), tmp_path / "lora.safetensors")
        assert engine.stats()["prefix_tokens"] > 0


def test_embedding_of_passages(tmp_path):
    encoder = models.Encoder(models.Size(1, 8, 2, 16), vocabulary_size=50)
    embed, tokens = MeanEmbedding(encoder), np.array([[3, 1, 4, 1]])
    check_changes(encoder, lambda: embed(tokens), lambda: MeanEmbedding(encoder)(tokens), tmp_path / "lora.safetensors")


@pytest.mark.exhaustive
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="It starts the other backend.")
def test_on_jax():
    environment = os.environ | {"KERAS_BACKEND": "jax"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-n",
        "0",
        "-m",
        "",
        __file__,
        "-k",
        "graph or engine",
    ]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    assert done.returncode == 0, done.stdout[-3000:]
    assert done.stdout.startswith("..")
