"""Folders for transformers.js: its pipelines answer in Node as Keras does.

They run where the environment variable NODE_MODULES is the path of npm packages with `@huggingface/transformers`.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import tokenizers

from keras_transformer.export import ExportError, InvalidModelError, MissingLibraryError, verify_bundle
from keras_transformer.export.engines.transformers_js import check
from keras_transformer.export.engines.transformers_js import tokenizer as files
from keras_transformer.text import Characters, WordPiece

NODE_MODULES = os.environ.get("NODE_MODULES")
NEEDS_NODE = pytest.mark.skipif(not NODE_MODULES, reason="NODE_MODULES is not set")
WORKER = Path(__file__).with_name("transformers_js_worker.py")
TASKS = ["feature-extraction", "text-classification", "fill-mask", "image-classification"]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The folders, written in a process of their own."""
    out = tmp_path_factory.mktemp("transformers_js")
    environment = os.environ | {"KERAS_BACKEND": "tensorflow"}
    run = subprocess.run([sys.executable, WORKER, out], capture_output=True, text=True, env=environment)
    assert (out / "answers.npz").exists(), run.stderr[-3000:]
    return out


def answers(written, task):
    found = np.load(written / "answers.npz")
    return [found[name] for name in sorted(found.files) if name.startswith(f"{task}/")]


@NEEDS_NODE
@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_the_pipeline_answers_as_keras(written, task):
    import transformers_js_worker as worker

    examples = list(worker.images()) if task == "image-classification" else worker.TEXTS
    expected = answers(written, task)
    for found, right in zip(check.ask(written / task, task, examples, str(NODE_MODULES)), expected, strict=True):
        if task == "fill-mask":
            scores = {each["token"]: each["score"] for each in found}
            found = np.array([[scores[index] for index in range(len(worker.WORDS))]])
        elif task != "feature-extraction":
            found = check.scores_of(found, worker.CLASSES)[None]
        np.testing.assert_allclose(found, right, atol=1e-5 * max(np.abs(right).max(), 1.0))


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_the_graph_has_the_names_of_transformers(written, task):
    session = onnxruntime.InferenceSession(str(written / task / "onnx" / "model.onnx"))
    inputs = {each.name: (each.type, each.shape) for each in session.get_inputs()}
    text = ("tensor(int64)", ["batch", "length"])
    known = {"input_ids": text, "attention_mask": text, "token_type_ids": text}
    known["pixel_values"] = ("tensor(float)", ["batch", 3, 16, 24])
    assert inputs == {name: known[name] for name in inputs}
    assert {"input_ids", "attention_mask"} <= inputs.keys() or list(inputs) == ["pixel_values"]
    (output,) = session.get_outputs()
    assert output.name == ("last_hidden_state" if task == "feature-extraction" else "logits")
    assert list(verify_bundle(written / task).artifacts) == ["onnx"]
    config = json.loads((written / task / "config.json").read_text())
    assert config["model_type"] == ("vit" if task == "image-classification" else "bert")
    assert ("id2label" in config) == task.endswith("-classification")
    assert config["transformers.js_config"] == {"dtype": "fp32"}


def test_the_tokenizer_json_of_a_word_piece():
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cat", "##s", "uber", ","]
    tokenizer = WordPiece(words)
    found = tokenizers.Tokenizer.from_str(json.dumps(files.tokenizer_json(tokenizer)))
    for text in ("Cats, Über [MASK] xyz", "", "cat"):
        expected = tokenizer.encode(text, start=True, end=True, allow_special_tokens=True)
        assert found.encode(text).ids == expected
    pair = found.encode("cat", "cats")
    assert pair.ids == [2, 5, 3, 5, 6, 3]
    assert pair.type_ids == [0, 0, 0, 1, 1, 1]
    assert files.tokenizer_config(tokenizer, 30)["mask_token"] == "[MASK]"
    with pytest.raises(InvalidModelError, match="not characters"):
        files.tokenizer_json(Characters.train(["abc"]))
    with pytest.raises(InvalidModelError, match="needs a tokenizer"):
        files.tokenizer_json(None)


def test_what_does_not_fit_is_refused(tmp_path):
    import keras

    from keras_transformer.export import write_transformers_js

    inputs = keras.Input((8, 8, 3), name="images")
    model = keras.Model(inputs, keras.layers.Dense(2, name="probabilities")(keras.layers.Flatten()(inputs)))
    path = tmp_path / "folder"
    with pytest.raises(ExportError, match="task must be one of feature-extraction"):
        write_transformers_js(model, path, "translate")
    with pytest.raises(InvalidModelError, match="needs a tokenizer"):
        write_transformers_js(model, path, "translation")
    with pytest.raises(InvalidModelError, match="passes token_ids"):
        write_transformers_js(model, path, "text-classification")
    with pytest.raises(ExportError, match="needs a processor"):
        write_transformers_js(model, path, "image-classification")
    with pytest.raises(ExportError, match="must be 2 different names"):
        write_transformers_js(model, path, "image-classification", metadata={"class_names": ["a", "a"]})
    with pytest.raises(InvalidModelError, match="one output of rank 2, logits"):
        write_transformers_js(keras.Model(inputs, inputs * 2), path, "image-classification")
    with pytest.raises(MissingLibraryError, match="transformers"):
        check.check_node(tmp_path)
    assert not path.exists()
