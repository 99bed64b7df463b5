"""Tokenizers in their files: bytes or strings in, the ids of the tokenizer out."""

import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import text_worker as worker
from ai_edge_litert.interpreter import Interpreter
from variants import exhaustive_but

from keras_transformer.export import InvalidBundleError, InvalidModelError, load, write_text_onnx, write_text_tflite
from keras_transformer.export.bundle.tokenizers import text_rows
from keras_transformer.export.text.files.probe_texts import random_text
from keras_transformer.text import from_huggingface

pytestmark = pytest.mark.slow
NEEDS_EXTENSIONS = pytest.mark.skipif(not worker.HAS_STRINGS, reason="onnxruntime-extensions is not installed")
# Not those that the export compares.
TEXTS = [random_text(random.Random(seed), seed % 40) for seed in range(1000, 1200)]
FILES = [("wordpiece", "tflite"), ("gpt2", "onnx"), ("qwen2", "tflite"), ("unigram", "tflite"), ("unigram", "onnx")]
TEXTS += ["Unaffable cats, THE mat!", "", "the " * 30, "<|endoftext|> a<|endoftext|>", "don't \n\n x  "]


@pytest.fixture(scope="module")
def written(tmp_path_factory, environment_of):
    """The files, written in a process of their own."""
    out = tmp_path_factory.mktemp("text")
    run = subprocess.run(
        [sys.executable, worker.__file__, out], capture_output=True, text=True, env=environment_of("written")
    )
    assert (out / "done").exists(), run.stderr[-3000:]
    return out


@pytest.mark.parametrize("name, backend", exhaustive_but(FILES, ("wordpiece", "tflite"), ("gpt2", "onnx")))
def test_a_file_returns_the_ids_and_texts_of_the_tokenizer(written, name, backend):
    tokenize, detokenize = (load(written / name, backend, each) for each in ("tokenize", "detokenize"))
    tokenizer = tokenize.tokenizer
    expected = tokenizer.encode(TEXTS, **tokenize.tokenizer_options)
    empty = tokenizer.encode([""], **tokenize.tokenizer_options)
    for texts, rows in ((TEXTS, expected), (TEXTS[-1:], expected[-1:]), ([""], empty)):
        arrays = tokenize(texts)
        pairs = zip(arrays["token_ids"], arrays["padding_mask"], strict=True)
        assert [row[kept].tolist() for row, kept in pairs] == rows
        found = detokenize(arrays)
        contents = zip(found["bytes"], found["lengths"], strict=True)
        assert [row[:size].tobytes().decode() for row, size in contents] == tokenizer.decode(rows)


def test_a_template_and_a_length_are_part_of_the_file(written):
    found = load(written / "wordpiece", "tflite", "tokenize")("Unaffable cats, THE mat! the mat the mat")
    assert found["token_ids"].tolist() == [[2, 5, 6, 7, 11, 12, 8, 10, 13, 9, 10, 3]]


def test_a_file_that_returns_other_ids_is_not_handed_over(written):
    assert "tflite: output 'token_ids'" in (written / "refused.txt").read_text()
    assert not (written / "wrong").exists()


def test_texts_as_bytes():
    arrays = text_rows(["n\u00e9", "", "a"])
    assert arrays["bytes"].tolist() == [[110, 195, 169], [0, 0, 0], [97, 0, 0]]
    assert arrays["lengths"].tolist() == [3, 0, 1]
    assert text_rows([""])["bytes"].shape == (1, 1)


# Bytes to the outputs of a model.


@pytest.mark.parametrize("file, signature", [("any", "serve"), ("one", "serve_1x12")])
def test_bytes_to_the_outputs_of_a_model(written, file, signature):
    interpreter = Interpreter(str(written / f"{file}.tflite"), num_threads=1)
    assert list(interpreter.get_signature_list()) == [signature]
    classify, model = interpreter.get_signature_runner(signature), load(written / "classifier", "tflite")
    texts = ["Unaffable cats, THE mat!", "the mat", "cat " * 20, "", "the", "CATS"]
    expected = model(texts)["probabilities"]
    found = [classify(**text_rows([text]))["probabilities"][0] for text in texts * 2]
    np.testing.assert_allclose(found, [*expected, *expected], atol=1e-6)
    assert np.ptp(expected, axis=0).max() > 1e-4  # The texts differ.
    if file == "any":
        np.testing.assert_allclose(classify(**text_rows(texts))["probabilities"], expected, atol=1e-6)


def test_what_cannot_take_bytes_is_refused(written, tmp_path):
    with pytest.raises(InvalidBundleError, match="no signature 'other'"):
        write_text_tflite(written / "classifier", tmp_path / "a.tflite", "other")
    with pytest.raises(InvalidBundleError, match="no tflite artifact"):
        write_text_tflite(written / "gpt2", tmp_path / "a.tflite", "tokenize")
    with pytest.raises(InvalidModelError, match="takes 'bytes', which is no part of a text"):
        write_text_tflite(written / "wordpiece", tmp_path / "a.tflite", "tokenize")
    assert not list(tmp_path.iterdir())


# Strings.


def strings_session(path):
    from keras_transformer.export.text.files import extensions

    return extensions.session(str(path))


@NEEDS_EXTENSIONS
def test_strings_to_ids_and_back(written):
    tokenizer = from_huggingface(Path(worker.DATA) / "gpt2")
    texts = [text.replace("\x00", "") for text in TEXTS]
    expected = tokenizer.encode(texts)
    session = strings_session(written / "tokenize.onnx")
    ids, mask = session.run(["token_ids", "padding_mask"], {"text": np.array(texts, object)})
    assert [row[kept].tolist() for row, kept in zip(ids, mask, strict=True)] == expected
    (found,) = strings_session(written / "detokenize.onnx").run(["text"], {"token_ids": ids, "padding_mask": mask})
    assert found.tolist() == texts  # GPT-2 loses nothing.


@NEEDS_EXTENSIONS
def test_a_string_ends_before_u_0000(written):
    session = strings_session(written / "tokenize.onnx")
    found, expected = (session.run(["token_ids"], {"text": np.array([text], object)})[0] for text in ("a\x00b", "a"))
    assert found.tolist() == expected.tolist()


@NEEDS_EXTENSIONS
def test_strings_to_the_outputs_of_a_model(written):
    model, session = load(written / "classifier"), strings_session(written / "classifier.onnx")
    texts = ["Unaffable cats, THE mat!", "the mat", "cat " * 20]
    expected = model(texts)["probabilities"]
    (found,) = session.run(["probabilities"], {"text": np.array(texts, object)})
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert np.ptp(expected, axis=0).max() > 1e-4  # The texts differ.


@NEEDS_EXTENSIONS
def test_what_cannot_take_strings_is_refused(written, tmp_path):
    with pytest.raises(InvalidBundleError, match="no signature 'other'"):
        write_text_onnx(written / "gpt2", tmp_path / "a.onnx", "other")
    with pytest.raises(InvalidBundleError, match="no onnx artifact"):
        write_text_onnx(written / "wordpiece", tmp_path / "a.onnx")
    assert not list(tmp_path.iterdir())
