"""Bundles for accelerators: what is in them, and what their accelerator, where it is installed, takes of them."""

import json

import numpy as np
import onnx
import pytest
from variants import exhaustive_but

from keras_transformer.export import load
from keras_transformer.export.data.report import Report
from keras_transformer.export.targets import get_target
from keras_transformer.export.tflite.graph import graphs
from keras_transformer.export.tflite.tree import read_file
from keras_transformer.generation import GenerationError, PromptTooLongError

TFLITE = ("classifier_litert-gpu", "decoder_litert-gpu", "classifier_xnnpack")
# Those of target_worker.py: of one token, of as many as a signature takes, and of more.
PROMPTS = [[3], [5, 9, 2, 40], [7, 1, 8, 33, 20, 11, 4]]
SOURCES = [[5, 9, 12], [7, 30, 8, 33]]


def result(targets, name):
    return Report.from_dict(targets[name]["report"]).target


@pytest.mark.parametrize("name", exhaustive_but(TFLITE, *TFLITE[:2]))
def test_the_file_has_operators_of_the_delegate_only(targets, name):
    path = targets.bundle(name) / "model.tflite"
    for signature in result(targets, name).signatures:
        assert get_target("litert-gpu").check(path, signature.name) == []
    kinds = {graph.kind(each) for graph in graphs(read_file(path)) for each in graph.subgraph.operators}
    assert kinds.isdisjoint({"SCATTER_ND", "BROADCAST_TO", "GATHER_ND", "SIN", "COS"})


def test_a_classifier_has_one_signature_of_fixed_shapes(targets):
    manifest = json.loads((targets.bundle("classifier_litert-gpu") / "manifest.json").read_text())
    assert list(manifest["artifacts"]) == ["tflite"]
    inputs = {each["name"]: each["shape"] for each in manifest["signatures"]["serve"]["inputs"]}
    assert inputs == {"token_ids": [1, 8], "segment_ids": [1, 8], "padding_mask": [1, 8]}
    assert manifest["target"]["target"] == "litert-gpu"
    model = load(targets.bundle("classifier_litert-gpu"), "tflite")
    ids = np.arange(8, dtype="int32")[None]
    found = model(token_ids=ids, segment_ids=ids * 0, padding_mask=ids < 6)["probabilities"]
    assert found.shape == (1, 3)
    np.testing.assert_allclose(found.sum(), 1, rtol=1e-5)


def test_a_decoder_has_its_cache_as_inputs_and_outputs(targets):
    for name, format in (("decoder_litert-gpu", "tflite"), ("decoder_qnn", "onnx")):
        manifest = json.loads((targets.bundle(name) / "manifest.json").read_text())
        assert list(manifest["artifacts"][format]["signatures"]) == ["prefill_4", "decode_1"]
        inputs = {each["name"]: each["shape"] for each in manifest["signatures"]["decode_1"]["inputs"]}
        assert inputs["decoder_block_0_key"] == [1, 1, 12, 8]
        assert manifest["generation"]["static_length"] == 12


@pytest.mark.parametrize(
    ("name", "backend", "prompts"),
    [
        ("decoder_litert-gpu", "tflite", PROMPTS),
        ("decoder_qnn", "onnx", PROMPTS),
        pytest.param("decoder_webgpu", "onnx", PROMPTS, marks=pytest.mark.exhaustive),
        pytest.param("translator_xnnpack", "tflite", SOURCES, marks=pytest.mark.exhaustive),
    ],
)
def test_a_bundle_of_fixed_shapes_generates_what_keras_does(targets, name, backend, prompts):
    model = load(targets.bundle(name), backend)
    expected = targets[name]["tokens"]
    assert model.generate(prompts, max_new_tokens=5) == expected
    assert [model.generate(prompt, max_new_tokens=5) for prompt in prompts] == expected
    assert len({tuple(tokens) for tokens in expected}) == len(prompts)
    if backend == "onnx":
        assert len(list(model.stream(prompts[0], max_new_tokens=3))) == 3
        with pytest.raises(PromptTooLongError, match="12"):
            model.generate(list(range(9)), max_new_tokens=4)
        with pytest.raises(GenerationError, match="fixed shapes"):
            model.paged_steps(4, 4, max_batch_size=2)


def test_every_shape_of_an_onnx_file_is_fixed(targets):
    for signature in ("prefill_4", "decode_1"):
        graph = onnx.load(targets.bundle("decoder_qnn") / f"model.{signature}.onnx", load_external_data=False).graph
        dims = [dim for each in (*graph.input, *graph.output) for dim in each.type.tensor_type.shape.dim]
        assert all(each.HasField("dim_value") for each in dims)
        # In the NPU's 16 bits, sines of positions are looked up.
        assert {"GatherND", "Sin", "Cos"}.isdisjoint({node.op_type for node in graph.node})


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["decoder_webgpu", "decoder_coreml"])
def test_the_sines_of_the_slots_of_the_cache_are_a_table(targets, name):
    graph = onnx.load(targets.bundle(name) / "model.decode_1.onnx").graph
    assert {"Sin", "Cos"}.isdisjoint(node.op_type for node in graph.node)
    # 4 pairs of features.
    assert sum(list(each.dims) == [12, 4 if name == "decoder_coreml" else 8] for each in graph.initializer) == 2


@pytest.mark.exhaustive
def test_the_ml_programs_of_a_decoder_generate_what_keras_does(targets):
    """With the cache that one program returns as an input of the next."""
    found = result(targets, "decoder_coreml")
    if not found.is_proven:
        pytest.skip(found.reason)
    from keras_transformer.export.coreml.interpreter import Program

    assert found.compiled == ("model.prefill_4.mlpackage", "model.decode_1.mlpackage")
    folder = targets.bundle("decoder_coreml")
    prefill, decode = (Program(folder / each) for each in found.compiled)
    prompt, expected = PROMPTS[1], targets["decoder_coreml"]["tokens"][1]
    manifest = json.loads((folder / "manifest.json").read_text())
    shapes = {each["name"]: each["shape"] for each in manifest["signatures"]["decode_1"]["inputs"]}
    cache = {key: np.zeros(shape, "float32") for key, shape in shapes.items() if key.startswith("decoder_block")}
    outputs = prefill({"token_ids": np.array([prompt], "int32"), "lengths": np.array([4], "int32"), **cache})
    tokens = [int(outputs["logits"].argmax())]
    for index in range(4, 8):
        cache = {key: outputs[f"{key}_output"] for key in cache}
        given = {"token_ids": np.array([tokens[-1:]], "int32"), "cache_index": np.array([index], "int32")}
        outputs = decode({**given, **cache})
        tokens.append(int(outputs["logits"].argmax()))
    assert tokens == expected


@pytest.mark.exhaustive
def test_xnnpack_takes_all_but_lookups_and_integers(targets):
    found = result(targets, "classifier_xnnpack")
    assert found.is_proven
    assert not found.is_whole
    (signature,) = found.signatures
    assert signature.nodes - signature.taken == sum(each.count for each in signature.fallbacks)
    assert "GATHER" in {each.op for each in signature.fallbacks}
    assert ("token_embedding",) in {each.layers[-1:] for each in signature.fallbacks}


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("classifier_litert-gpu", 1e-5),
        ("decoder_litert-gpu", 1e-5),
        ("decoder_qnn", 1e-2),
        pytest.param("decoder_webgpu", 1e-5, marks=pytest.mark.exhaustive),
        pytest.param("decoder_coreml", 1e-5, marks=pytest.mark.exhaustive),
    ],
)
def test_the_accelerator_takes_every_node(targets, name, limit):
    found = result(targets, name)
    if not found.is_proven:
        assert f"NOT RUN ({found.reason})" in targets[name]["text"]
        pytest.skip(found.reason)
    assert found.is_whole
    assert found.difference < limit
