"""Language models for transformers.js: ONNX Runtime and, where NODE_MODULES is set, the pipelines generate what Keras does.

See test_transformers_js.py for NODE_MODULES.
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

from keras_transformer.export import verify_bundle
from keras_transformer.export.engines.transformers_js import check
from keras_transformer.text import Bytes

NODE_MODULES = os.environ.get("NODE_MODULES")
NEEDS_NODE = pytest.mark.skipif(not NODE_MODULES, reason="NODE_MODULES is not set")
WORKER = Path(__file__).with_name("transformers_js_language_worker.py")
pytestmark = pytest.mark.exhaustive


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The folders, written in a process of their own."""
    out = tmp_path_factory.mktemp("transformers_js")
    environment = os.environ | {"KERAS_BACKEND": "tensorflow"}
    run = subprocess.run([sys.executable, WORKER, out], capture_output=True, text=True, env=environment)
    assert (out / "answers.json").exists(), run.stderr[-3000:]
    return out


def answer(written, name):
    return json.loads((written / "answers.json").read_text())[name]


def config(written, name, file="config.json"):
    return json.loads((written / name / file).read_text())


@NEEDS_NODE
@pytest.mark.parametrize("name", ["decoder", "t5", "whisper"])
def test_the_pipeline_generates_what_keras_does(written, name):
    """Texts of different lengths in one batch."""
    import transformers_js_language_worker as worker

    _, task, _ = worker.CASES[name]
    asked = worker.samples() if name == "whisper" else worker.TEXTS
    (found,) = check.ask(written / name, task, [asked], str(NODE_MODULES), worker.NEW)
    if name == "whisper":
        tokens = answer(written, name)["tokens"]
        assert [found["tokens"][len(found["tokens"]) - len(tokens[0]) :]] == tokens
        assert [found["text"]] == answer(written, name)["texts"]
        return
    for each, tokens, text in zip(found, answer(written, name)["tokens"], answer(written, name)["texts"], strict=True):
        assert each["tokens"][: len(tokens)] == tokens
        assert len(tokens) < worker.NEW or each["text"] == text


@NEEDS_NODE
@pytest.mark.parametrize(("name", "dtype"), [("decoder_q4", "q4"), ("translator_q8", "q8")])
def test_quantized_folders_load_without_being_asked(written, name, dtype):
    """Their tokens are those of ONNX Runtime in Python."""
    import transformers_js_language_worker as worker

    from keras_transformer.export.engines.greedy import greedy_tokens
    from keras_transformer.export.engines.key_value_cache import KeyValueCache
    from keras_transformer.export.engines.past_present import PastPresent
    from keras_transformer.export.engines.transformers_js.decoder import decoder_steps

    assert config(written, name)["transformers.js_config"]["dtype"] == dtype
    (found,) = check.ask(written / name, worker.CASES[name][1], [worker.TEXTS], str(NODE_MODULES), worker.NEW)
    assert [len(each["tokens"]) for each in found] == [worker.NEW] * 2
    if name == "decoder_q4":
        cache = PastPresent(KeyValueCache(("block",), 2, 32))
        for text, each in zip(worker.TEXTS, found, strict=True):
            steps = decoder_steps(written / name / "onnx" / "model_q4.onnx", cache, [Bytes().encode(text)], worker.NEW)
            assert each["tokens"] == greedy_tokens(steps, worker.NEW)


def test_the_files_have_the_names_of_the_library(written):
    """The axis of the batch is `batch_size`, by which the library sizes the empty cache."""
    for name, expected in {
        "decoder": ["model.onnx"],
        "decoder_q4": ["model_q4.onnx"],
        "t5": ["decoder_model_merged.onnx", "encoder_model.onnx"],
        "translator_q8": ["decoder_model_merged_quantized.onnx", "encoder_model_quantized.onnx"],
        "whisper": ["decoder_model_merged.onnx", "encoder_model.onnx"],
    }.items():
        assert sorted(path.name for path in (written / name / "onnx").iterdir()) == expected
        assert not list((written / name).glob("model*"))
        session = onnxruntime.InferenceSession(str(written / name / "onnx" / expected[0]))
        inputs = {each.name: each.shape for each in session.get_inputs()}
        past = {each for each in inputs if each.startswith("past_key_values.")}
        assert {each.name.replace("present", "past_key_values") for each in session.get_outputs()} == {"logits", *past}
        assert {inputs[each][0] for each in past} == {"batch_size"}
        part = "" if name.startswith("decoder") else "decoder."
        layers = config(written, name)["num_hidden_layers" if not part else "decoder_layers"]
        assert {f"past_key_values.{layer}.{part}key" for layer in range(layers)} <= past


@pytest.mark.parametrize("name", ["decoder", "translator_q8", "whisper"])
def test_the_folder_is_a_bundle_that_proves_itself(written, name):
    report = verify_bundle(written / name)["onnx"]
    assert report.ratio <= (1e-5 if "q8" not in name else 0.5)
    assert report.ratio == pytest.approx(answer(written, name)["ratio"], rel=0.5)


def test_padding_on_the_left_changes_nothing(written):
    """The graph of a decoder alone: a row with padding gives what the row gives without."""
    session = onnxruntime.InferenceSession(str(written / "decoder" / "onnx" / "model.onnx"))
    past = {
        each.name: np.zeros((2, each.shape[1], 0, each.shape[3]), "float32")
        for each in session.get_inputs()
        if each.name.startswith("past")
    }
    ids = np.array([[0, 0, 7, 9], [5, 6, 7, 9]])
    mask = (ids > 0).astype("int64")
    both = session.run(["logits"], {"input_ids": ids, "attention_mask": mask, **past})[0]
    alone = {name: array[:1] for name, array in past.items()}
    one = session.run(["logits"], {"input_ids": ids[:1, 2:], "attention_mask": mask[:1, 2:], **alone})[0]
    np.testing.assert_allclose(both[0], one[0], atol=1e-5)
    assert np.abs(both[0] - both[1]).max() > 1e-3


def test_the_tokenizer_adds_what_generate_adds(written):
    def ids(name):
        return tokenizers.Tokenizer.from_file(str(written / name / "tokenizer.json")).encode("hello world").ids

    decoder, translator, t5, plain = (ids(name) for name in ("decoder", "translator_q8", "t5", "decoder_q4"))
    assert decoder[0] == config(written, "decoder")["bos_token_id"]
    assert decoder[-1] != config(written, "decoder")["eos_token_id"]
    assert translator == [*decoder[1:], config(written, "translator_q8")["eos_token_id"]]
    assert t5 == [5, 6]
    assert len(plain) == len("hello world")
    added = [config(written, name, "tokenizer_config.json")["add_bos_token"] for name in ("decoder", "decoder_q4")]
    assert added == [True, False]


def test_a_whisper_begins_with_its_language_and_task(written):
    found = config(written, "whisper", "generation_config.json")
    assert found["is_multilingual"] is True
    assert list(found["lang_to_id"]) == ["<|en|>"]
    assert list(found["task_to_id"]) == ["transcribe"]
    assert found["no_timestamps_token_id"] == found["task_to_id"]["transcribe"] + 1
    processor = config(written, "whisper", "preprocessor_config.json")
    assert (processor["n_samples"], processor["nb_max_frames"], processor["feature_size"]) == (16_000, 100, 20)
    assert config(written, "whisper")["max_source_positions"] == 50


def test_what_does_not_fit_is_refused(tmp_path):
    import transformers_js_language_worker as worker

    from keras_transformer.audio import LogMel
    from keras_transformer.export import (
        ExportError,
        InvalidModelError,
        QuantizationError,
        write_transformers_js,
    )
    from keras_transformer.text import Characters

    decoder, translator, whisper = worker.decoder(), worker.translator(), worker.whisper()
    speech = "automatic-speech-recognition"
    with pytest.raises(InvalidModelError, match="encoder-decoder"):
        write_transformers_js(translator, tmp_path / "no", "text-generation")
    with pytest.raises(InvalidModelError, match="not an encoder-decoder"):
        write_transformers_js(decoder, tmp_path / "no", "translation")
    with pytest.raises(InvalidModelError, match="takes texts"):
        write_transformers_js(whisper, tmp_path / "no", "translation")
    with pytest.raises(ExportError, match="needs a processor"):
        write_transformers_js(whisper, tmp_path / "no", speech)
    with pytest.raises(InvalidModelError, match=r"\(100, 20\).*\(200, 20\)"):
        write_transformers_js(whisper, tmp_path / "no", speech, processor=LogMel.whisper(20, num_samples=32_000))
    with pytest.raises(InvalidModelError, match="not characters"):
        write_transformers_js(decoder, tmp_path / "no", "text-generation", tokenizer=Characters.train(["abc"]))
    with pytest.raises(QuantizationError, match="'weight_int8'"):
        write_transformers_js(decoder, tmp_path / "no", "text-generation", quantize="weight_int8")
    assert not (tmp_path / "no").exists()
