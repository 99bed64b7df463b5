"""Triton model repositories: `config.pbtxt` matches the inputs, outputs and states of the ONNX file."""

import json
import pathlib
import shutil

import numpy as np
import onnxruntime
import pytest
from variants import exhaustive_but

from keras_transformer.export import Batching, ExportError, InvalidBundleError, ParityError, load, write_triton
from keras_transformer.export.bundle.manifest import file_records
from keras_transformer.export.bundle.probe_files import read_probes, write_probes
from keras_transformer.export.commands import main as cli
from keras_transformer.export.engines.triton.text_proto import Enum, text_proto


def served(path, config):
    """Returns a session of the file, and a function that runs it by the names in the configuration, as Triton does."""
    session = onnxruntime.InferenceSession(str(path / "model.onnx"))
    outputs = [each.name for each in config.output]

    def run(states=None, **arrays):
        shaped = {}
        for each in config.input:
            array = arrays[each.name]
            expected = [*each.dims] if not config.max_batch_size else [array.shape[0], *each.dims]
            assert array.ndim == len(expected)
            assert all(size in (-1, got) for size, got in zip(expected, array.shape, strict=True))
            shaped[each.name] = array.reshape(len(array)) if each.HasField("reshape") else array
        if states is None:
            return dict(zip(outputs, session.run(outputs, shaped), strict=True))
        kept = config.sequence_batching.state
        got = session.run([*outputs, *(each.output_name for each in kept)], {**shaped, **states})
        new = {each.input_name: array for each, array in zip(kept, got[len(outputs) :], strict=True)}
        return dict(zip(outputs, got[: len(outputs)], strict=True)), new

    return run


def read_config(path):
    """Parses the text as the server does."""
    text_format = pytest.importorskip("google.protobuf.text_format")
    protos = pytest.importorskip("tritonclient.grpc.model_config_pb2", exc_type=(ImportError, RuntimeError))
    return text_format.Parse((path.parent / "config.pbtxt").read_text(), protos.ModelConfig())


def test_a_model_of_one_signature(exported, tmp_path):
    bundle = exported.bundle("encoder")
    asked = Batching(max_batch_size=8, wait_ms=0.3, max_waiting=20)
    (path,) = write_triton(bundle, tmp_path, name="reader", version=3, batching=asked)
    assert path == tmp_path / "reader" / "3"
    config = read_config(path)
    assert (config.name, config.backend, config.max_batch_size) == ("reader", "onnxruntime", 8)
    assert config.dynamic_batching.max_queue_delay_microseconds == 300
    assert config.dynamic_batching.default_queue_policy.max_queue_size == 20
    assert {each.name: list(each.dims) for each in config.input} == {"token_ids": [-1], "padding_mask": [-1]}
    model = load(bundle)
    arrays = model.example(batch=3, length=7)
    found, expected = served(path, config)(**arrays), model(arrays)
    assert found.keys() == expected.keys()
    np.testing.assert_array_equal(found["pooled"], expected["pooled"])


def test_each_signature_is_a_model(exported, tmp_path):
    paths = write_triton(exported.bundle("two_signatures"), tmp_path, name="two")
    assert [path.parent.name for path in paths] == ["two_prefill", "two_decode_step"]
    model = load(exported.bundle("two_signatures"), signature="decode_step")
    config = read_config(paths[1])
    assert {each.name: list(each.dims) for each in config.input} == {"cache": [6, 4], "x": [4]}
    arrays = model.example(batch=2)
    expected, found = model(arrays), served(paths[1], config)(**arrays)
    np.testing.assert_array_equal(found["last"], expected["last"])
    renamed = (set(found) - {"last"}).pop()
    np.testing.assert_array_equal(found[renamed], expected["cache"])


@pytest.mark.parametrize("name", exhaustive_but(("gpt", "mistral", "rwkv", "yoco", "transformer_xl"), "gpt", "rwkv"))
def test_the_cache_of_a_text_stays_in_the_server(language, tmp_path, name):
    """Greedy decoding of two texts in one batch, from zero states as configured, equals `generate` of the bundle."""
    (path,) = write_triton(language.bundle(name), tmp_path, name=name, max_length=20)
    config = read_config(path)
    run, model = served(path, config), load(language.bundle(name))
    prompts, steps = np.array([[70, 71, 72, 73, 74], [99, 98, 97, 96, 95]], "int32"), 9
    types = {each.name: each.type for each in onnxruntime.InferenceSession(str(path / "model.onnx")).get_inputs()}
    states = {}
    for each in config.sequence_batching.state:
        (initial,) = each.initial_state
        assert initial.zero_data
        assert list(initial.dims) == list(each.dims)
        dtype = {"tensor(float)": "float32", "tensor(int32)": "int32", "tensor(bool)": "bool"}[types[each.input_name]]
        states[each.input_name] = np.zeros((2, *initial.dims), dtype)
    tokens, index, texts = prompts, 0, []
    for _ in range(steps):
        places = np.full((2, 1), index, "int32")
        outputs, states = run(states, token_ids=tokens, cache_index=places)
        index += tokens.shape[1]
        tokens = outputs["logits"][:, -1:].argmax(-1).astype("int32")
        texts.append(tokens[:, 0])
    expected = model.generate(prompts.tolist(), max_new_tokens=steps, stop=None)
    for row, text in zip(np.stack(texts, 1).tolist(), expected, strict=True):
        assert row[: len(text)] == text


def test_an_encoder_decoder_is_three_models(language, tmp_path):
    paths = write_triton(language.bundle("translator"), tmp_path, name="translator")
    names = ["translator_encode", "translator_prefill", "translator_decode"]
    assert [path.parent.name for path in paths] == names
    weights = [next(each for each in path.iterdir() if each.name == "model.weights") for path in paths]
    assert len({each.stat().st_ino for each in weights}) == 1
    with pytest.raises(ExportError, match="max_length is for"):
        write_triton(language.bundle("translator"), tmp_path, name="other", max_length=8)


def test_another_version_stands_beside_the_first(exported, tmp_path):
    write_triton(exported.bundle("mlp"), tmp_path, name="model")
    before = file_records(tmp_path)
    write_triton(exported.bundle("mlp"), tmp_path, name="model", version=2)
    after = file_records(tmp_path)
    assert {key: after[key] for key in before} == before
    assert after["model/2/model.onnx"] == before["model/1/model.onnx"]
    with pytest.raises(ExportError, match="version 2 exists already"):
        write_triton(exported.bundle("mlp"), tmp_path, name="model", version=2)
    with pytest.raises(ExportError, match="another configuration"):
        write_triton(exported.bundle("encoder"), tmp_path, name="model", version=3)
    assert file_records(tmp_path) == after
    assert [each.name for each in tmp_path.iterdir()] == ["model"]


def test_what_cannot_be(exported, language, tmp_path):
    for name in ("a/b", ".x", "ä"):
        with pytest.raises(ExportError, match="the name of a model"):
            write_triton(exported.bundle("mlp"), tmp_path / "x", name=name)
    for version in (0, True, "1"):
        with pytest.raises(ExportError, match="version must be a positive integer"):
            write_triton(exported.bundle("mlp"), tmp_path / "x", version=version)
    with pytest.raises(InvalidBundleError, match="no onnx artifact; it has tflite"):
        write_triton(exported.bundle("only_tflite").parent / "only", tmp_path / "x")
    for length, message in ((1, "at least 2"), (25, "the model is limited to 24 tokens"), (2, "fewer than any probe")):
        with pytest.raises(ExportError, match=message):
            write_triton(language.bundle("gpt"), tmp_path / "x", max_length=length)
    assert not (tmp_path / "x").exists()


def test_what_computes_something_else_is_not_written(language, exported, tmp_path):
    for source, key, output in ((language.bundle("gpt"), "prefill", "logits"), (exported.bundle("mlp"), "serve", None)):
        copy = pathlib.Path(shutil.copytree(source, tmp_path / f"{key}_bundle"))
        probes = read_probes(copy)
        outputs = probes[key][0].outputs
        outputs[output or next(iter(outputs))].flat[-1] += 1
        write_probes(copy, probes, 2**24)
        manifest = json.loads((copy / "manifest.json").read_text())
        manifest["files"] = {
            name: each.to_dict() for name, each in file_records(copy).items() if name != "manifest.json"
        }
        (copy / "manifest.json").write_text(json.dumps(manifest))
        with pytest.raises(ParityError, match="onnx: output"):
            write_triton(copy, tmp_path / "repository")
        assert not (tmp_path / "repository").exists()


def test_the_command(exported, tmp_path, capsys):
    words = ["serving", str(exported.bundle("mlp")), "--for", "triton", "--out", str(tmp_path), "--name", "scores"]
    assert cli.main([*words, "--max-batch-size", "4"]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'scores' / '1'}\n"
    assert "max_batch_size: 4\n" in (tmp_path / "scores" / "config.pbtxt").read_text()
    assert cli.main([*words, "--default", "serve"]) == 1
    assert "--default is for tensorflow" in capsys.readouterr().err


def test_text_of_a_message():
    fields = {"on": True, "name": 'a "b"\n', "kind": Enum("TYPE_FP32"), "size": [1, 2], "left": None, "empty": {}}
    assert text_proto(fields) == 'on: true\nname: "a \\"b\\"\\n"\nkind: TYPE_FP32\nsize: 1\nsize: 2\nempty {\n}\n'
