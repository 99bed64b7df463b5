"""Bundles of tasks of KerasHub generate the texts of KerasHub in every runtime."""

import keras
import numpy as np
import pytest
from hub_families import FAMILIES, WITHOUT_CACHE_FOR_TEXTS
from variants import exhaustive_but

from keras_transformer.export import load

pytestmark = [
    pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the exporter's own process"),
    pytest.mark.slow,
]
PROMPT, OTHER, NEW = "The quick brown fox", "A man", 48
BACKENDS = ("saved_model", "tflite", "onnx")
NAMES = exhaustive_but(FAMILIES, "GPT2CausalLM")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", [*NAMES, pytest.param("whole", marks=pytest.mark.exhaustive)])
def test_greedy_tokens_are_those_of_keras_hub(hub, name, backend):
    results = hub[name]
    assert results["ratios"][backend] < 1
    bundle = load(hub.bundle(name), backend, num_threads=1)
    prompts, expected = zip(*(results[each] for each in (PROMPT, OTHER)), strict=True)
    ends = set(bundle.spec.end_ids)
    found = bundle.generate([list(each) for each in prompts], max_new_tokens=NEW)
    for tokens, own in zip(found, expected, strict=True):
        end = next((place for place, token in enumerate(own) if token in ends), NEW)
        assert len(own) == NEW
        assert list(tokens) == own[:end]
    text = bundle.generate(PROMPT, max_new_tokens=NEW)
    assert text == bundle.generate(PROMPT, max_new_tokens=NEW, sampler="greedy")
    assert "".join(bundle.stream(PROMPT, max_new_tokens=NEW)) == text


def test_one_token_reads_the_cache_and_computes_nothing_of_the_prompt_again(hub):
    """In a graph of one token, products of weights have one row, and no result but those of attention has the slots."""
    import onnx

    path = hub.bundle("GPT2CausalLM") / "model.decode_token.onnx"
    graph = onnx.shape_inference.infer_shapes(onnx.load(path, load_external_data=False)).graph
    shapes = {
        each.name: [size.dim_param or size.dim_value for size in each.type.tensor_type.shape.dim]
        for each in (*graph.value_info, *graph.output, *graph.input)
    }
    weights = {each.name for each in graph.initializer}
    products = [node for node in graph.node if node.op_type in ("MatMul", "Gemm") and set(node.input) & weights]
    assert products
    for node in products:
        assert "cache_length" not in shapes.get(node.output[0], []), node.name
    wide = [name for name, shape in shapes.items() if shape.count("cache_length") > 1]
    assert not wide


@pytest.mark.exhaustive
@pytest.mark.parametrize("backend", ["tflite", "onnx"])
def test_quantized_bundles_generate(hub, backend):
    results = hub["quantized"]
    assert results["ratios"][backend] <= 1
    tokens = load(hub.bundle("quantized"), backend, num_threads=1).generate(list(results[PROMPT][0]), max_new_tokens=4)
    assert len(tokens) == 4


@pytest.mark.parametrize("name", exhaustive_but(["half", "adapted"], "adapted"))
def test_twins_in_float32_and_with_merged_adapters_are_exported(hub, name):
    results = hub[name]
    assert results["ratios"]["onnx"] < 1
    prompt, expected = results[PROMPT]
    tokens = load(hub.bundle(name), "onnx", num_threads=1).generate(list(prompt), max_new_tokens=NEW)
    if name == "adapted":  # Texts of bfloat16 differ where two tokens are nearly as likely.
        assert list(tokens) == expected[: len(tokens)]
        assert len(tokens) > 3
    assert np.unique(tokens).size > 1


def test_a_preset_with_a_chat_template_chats(hub):
    results = hub["adapted"]
    bundle = load(hub.bundle("adapted"), "onnx", num_threads=1)
    assert bundle.tokenizer.decode(bundle.generate(results["asked"], max_new_tokens=9)) == results["chat"]


@pytest.mark.exhaustive
def test_families_without_a_cache_for_texts_are_refused(hub):
    for name in WITHOUT_CACHE_FOR_TEXTS:
        assert "crash" in hub.results[name], name
