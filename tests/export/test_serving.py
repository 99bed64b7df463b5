"""The layout of TensorFlow Serving: outputs equal those of the bundle, and versions appear atomically."""

import json
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf
from server_protos import batching_parameters

from keras_transformer.export import Batching, ExportError, InvalidBundleError, ParityError, load, write_serving
from keras_transformer.export.bundle.manifest import file_records
from keras_transformer.export.bundle.probe_files import read_probes, write_probes
from keras_transformer.export.commands import main as cli
from keras_transformer.export.engines.tensorflow_serving import version_directory as serving


def serve(path, signature, **arrays):
    """Runs the graph in a session, as a server does, with the tensor names of the signature."""
    graph = tf.Graph()
    with graph.as_default(), tf.compat.v1.Session(graph=graph) as session:
        loaded = tf.compat.v1.saved_model.load(session, ["serve"], str(path)).signature_def[signature]
        feeds = {loaded.inputs[name].name: array for name, array in arrays.items()}
        return session.run({name: info.name for name, info in loaded.outputs.items()}, feeds)


def test_a_version_is_served(exported, tmp_path):
    path = write_serving(exported.bundle("encoder"), tmp_path / "model", version=12)
    assert path == tmp_path / "model" / "12"
    assert sorted(each.name for each in (tmp_path / "model").iterdir()) == ["12"]
    ids = np.array([[3, 4, 5]], "int32")
    mask = np.ones((1, 3), bool)
    expected = load(exported.bundle("encoder"), "onnx")(token_ids=ids, padding_mask=mask)
    for signature in ("serving_default", "serve"):
        found = serve(path, signature, token_ids=ids, padding_mask=mask)
        assert found.keys() == expected.keys()
        np.testing.assert_allclose(found["pooled"], expected["pooled"], atol=1e-5)
    assert set(tf.saved_model.load(str(path)).signatures) == {"serve", "serving_default"}


def test_another_signature_may_be_the_default(exported, tmp_path):
    bundle = exported.bundle("two_signatures")
    first = write_serving(bundle, tmp_path, 1)
    second = write_serving(bundle, tmp_path, 2, default="decode_step")
    model = load(bundle, "saved_model", "decode_step")
    arrays = model.example(batch=2)
    expected = model(arrays)["last"]
    np.testing.assert_allclose(serve(second, "serving_default", **arrays)["last"], expected, atol=1e-6)
    with pytest.raises(ValueError, match="shape"):
        serve(first, "serving_default", **arrays)
    assert set(tf.saved_model.load(str(second)).signatures) == {"prefill", "decode_step", "serving_default"}


def test_a_server_is_told_how_to_put_requests_together(exported, tmp_path):
    path = write_serving(exported.bundle("mlp"), tmp_path, 1)
    found = batching_parameters((path / "batching_params.pbtxt").read_text())
    assert found.max_batch_size.value == 32
    assert list(found.allowed_batch_sizes) == [1, 2, 4, 8, 16, 32]
    asked = Batching(max_batch_size=12, wait_ms=0.5, max_waiting=30)
    path = write_serving(exported.bundle("mlp"), tmp_path, 2, batching=asked)
    found = batching_parameters((path / "batching_params.pbtxt").read_text())
    assert (found.max_batch_size.value, found.batch_timeout_micros.value) == (12, 500)
    assert found.max_enqueued_batches.value == 3
    assert list(found.allowed_batch_sizes) == [1, 2, 4, 8, 12]
    assert not found.pad_variable_length_inputs


def test_requests_of_other_lengths_are_not_put_together(exported, tmp_path):
    path = write_serving(exported.bundle("encoder"), tmp_path, 1)
    assert not (path / "batching_params.pbtxt").exists()
    with pytest.raises(ExportError, match="'serve' .* input 'padding_mask' varies in more than its first axis"):
        write_serving(exported.bundle("encoder"), tmp_path, 2, batching=Batching())
    assert sorted(each.name for each in tmp_path.iterdir()) == ["1"]


@pytest.mark.parametrize(
    "wrong", [{"max_batch_size": 0}, {"max_batch_size": True}, {"wait_ms": -1}, {"wait_ms": "2"}, {"max_waiting": 1.5}]
)
def test_figures_out_of_range(wrong):
    with pytest.raises(ExportError, match=f"{next(iter(wrong))} must be a"):
        Batching(**wrong)


def test_text_goes_in_and_comes_out(language, tmp_path):
    bundle = language.bundle("gpt")
    path = write_serving(bundle, tmp_path, default="generate_text")
    asked = {"text": np.array(["Zeus", "Grüße"]), "max_new_tokens": np.array(5, "int32")}
    found = serve(path, "serving_default", **asked)["new_text"]
    assert [each.decode() for each in found] == load(bundle, "onnx").generate(["Zeus", "Grüße"], max_new_tokens=5)


def test_nothing_there_is_replaced(exported, tmp_path):
    path = write_serving(exported.bundle("mlp"), tmp_path, 3)
    before = file_records(path)
    with pytest.raises(ExportError, match="version 3 exists already"):
        write_serving(exported.bundle("encoder"), tmp_path, 3)
    assert file_records(path) == before
    for wrong in (0, -1, "1", True, 1.0):
        with pytest.raises(ExportError, match="version must be a positive integer"):
            write_serving(exported.bundle("mlp"), tmp_path, wrong)
    with pytest.raises(InvalidBundleError, match="no saved_model artifact; it has tflite"):
        write_serving(exported.bundle("only_tflite").parent / "only", tmp_path, 4)
    with pytest.raises(InvalidBundleError, match="no signature 'other'; it has serve"):
        write_serving(exported.bundle("mlp"), tmp_path, 4, default="other")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["3"]


def test_a_server_that_polls_sees_no_half_version(exported, tmp_path, monkeypatch):
    seen, prove = [], serving._verify

    def spy(path, *arguments):
        seen.append([each.name for each in path.parent.iterdir()])
        return prove(path, *arguments)

    monkeypatch.setattr(serving, "_verify", spy)
    write_serving(exported.bundle("mlp"), tmp_path / "model")
    assert len(seen[0]) == 1
    assert not seen[0][0].isdecimal()


@pytest.fixture
def copy(exported, tmp_path):
    return pathlib.Path(shutil.copytree(exported.bundle("mlp"), tmp_path / "bundle"))


def repair(bundle):
    """Updates the hashes in the manifest."""
    manifest = json.loads((bundle / "manifest.json").read_text())
    manifest["files"] = {key: each.to_dict() for key, each in file_records(bundle).items() if key != "manifest.json"}
    (bundle / "manifest.json").write_text(json.dumps(manifest))


def test_damaged_weights_are_not_served(copy, tmp_path):
    data = next((copy / "saved_model" / "variables").glob("*.data*"))
    content = bytearray(data.read_bytes())
    place = max(range(len(content) - 64), key=lambda start: len(set(content[start : start + 64])))
    content[place : place + 64] = bytes(64)
    data.write_bytes(content)
    with pytest.raises(InvalidBundleError, match="was altered"):
        write_serving(copy, tmp_path / "model")
    repair(copy)
    with pytest.raises(InvalidBundleError, match="the SavedModel cannot be loaded: .*Checksum does not match"):
        write_serving(copy, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_what_computes_something_else_is_not_served(copy, tmp_path):
    probes = read_probes(copy)
    probes["serve"][-1].outputs["probabilities"][-1, -1] += 1e-3
    write_probes(copy, probes, 2**20)
    repair(copy)
    with pytest.raises(ParityError, match="saved_model: output 'probabilities' differs from Keras by 0.001"):
        write_serving(copy, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_the_command(exported, tmp_path, capsys):
    words = ["serving", str(exported.bundle("mlp")), "--out", str(tmp_path / "model"), "--version", "5"]
    assert cli.main(words) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'model' / '5'}\n"
    assert cli.main([*words[:-1], "6", "--max-batch-size", "4", "--wait-ms", "0"]) == 0
    text = (tmp_path / "model" / "6" / "batching_params.pbtxt").read_text()
    assert list(batching_parameters(text).allowed_batch_sizes) == [1, 2, 4]
    capsys.readouterr()
    assert cli.main([*words, "--max-length", "4"]) == 1
    assert "--max-length are for triton" in capsys.readouterr().err
    assert cli.main(words) == 1
    assert "version 5 exists already" in capsys.readouterr().err
