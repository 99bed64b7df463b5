"""The behavior of quantized language models: hand-computed figures, limits, and files with one fault."""

import json
import shutil
import types

import numpy as np
import onnx
import pytest
from hand_made import write_record
from onnx import numpy_helper

from keras_transformer.export import (
    Evaluation,
    InvalidBundleError,
    ParityError,
    QuantizationError,
    quantize,
    verify_bundle,
)
from keras_transformer.export.commands import main as cli
from keras_transformer.export.data.limits import LIMITS, Behavior, limits_of
from keras_transformer.export.verification.quantized.float_predictions import FILE, FloatPredictions, token_rows
from keras_transformer.export.verification.quantized.outputs import LoneRows, row_change
from keras_transformer.export.verification.quantized.predictions import Predictions, check_behavior
from keras_transformer.export.verification.quantized.reading import logits_of, sample

TOKENS = np.array([[0, 1, 0]], "int32")
FLOAT = np.log(np.array([[[0.5, 0.25, 0.25], [0.8, 0.1, 0.1]]]))
OTHER = np.log(np.array([[[0.25, 0.5, 0.25], [0.4, 0.3, 0.3]]]))


def test_figures_are_those_of_a_hand_computation():
    predictions = Predictions.of(TOKENS, [FLOAT])
    found = predictions.compare([OTHER], singles=1)
    first = 0.5 * np.log(0.5 / 0.25) + 0.25 * np.log(0.25 / 0.5)
    second = 0.8 * np.log(2) + 0.2 * np.log(1 / 3)
    # The tokens that follow are 1 and 0: 0.25 and 0.8 in the float model, 0.5 and 0.4 in the other.
    assert found.perplexity == pytest.approx(np.sqrt(0.25 * 0.8 / (0.5 * 0.4)))
    assert found.divergence == pytest.approx((first + second) / 2)
    assert (found.top_share, found.greedy_share, found.tokens) == (0.5, 1.0, 2)
    same = predictions.compare([FLOAT + 3.0])
    assert same.perplexity == pytest.approx(1)
    assert same.divergence == pytest.approx(0, abs=1e-6)


def test_tokens_that_are_not_kept_count_as_one():
    """200 tokens, of which 64 are kept: the divergence of the kept ones and of the rest."""
    logits = np.random.default_rng(0).normal(size=(1, 1, 200))
    tokens = np.array([[0, 7]], "int32")
    p, q = (np.exp(each) / np.exp(each).sum() for each in (logits[0, 0], logits[0, 0, ::-1]))
    top = np.argsort(-p)[:64]
    rest = (1 - p[top].sum()) * np.log((1 - p[top].sum()) / (1 - q[top].sum()))
    found = Predictions.of(tokens, [logits]).compare([logits[..., ::-1]])
    assert found.divergence == pytest.approx((p[top] * np.log(p[top] / q[top])).sum() + rest, rel=1e-5)


def test_a_tie_may_be_decided_either_way():
    even = np.log(np.array([[[0.49, 0.51, 1e-9]]]))
    assert Predictions.of(TOKENS[:, :2], [even]).compare([even[..., [1, 0, 2]]]).top_share == 1.0
    clear = np.log(np.array([[[0.4, 0.6, 1e-9]]]))
    assert Predictions.of(TOKENS[:, :2], [clear]).compare([clear[..., [1, 0, 2]]]).top_share == 0.0


@pytest.mark.parametrize("mode", LIMITS)
def test_each_limit_is_applied(mode):
    limits = limits_of(mode)
    good = Behavior(limits.perplexity, limits.divergence, limits.top_share, limits.greedy_share, 10)
    check_behavior("onnx", good, limits)
    for name, worse in (("perplexity", 1.01), ("divergence", 1.01), ("top_share", 0.99), ("greedy_share", 0.99)):
        for value in (worse * getattr(good, name), float("nan")):
            with pytest.raises(QuantizationError, match="onnx: "):
                check_behavior("onnx", Behavior(**(vars(good) | {name: value})), limits)


def test_the_limits():
    """Who changes them sees it here."""
    figures = {mode: (each.perplexity, each.divergence, each.top_share, each.change) for mode, each in LIMITS.items()}
    assert figures == {
        "fp16": (1.01, 0.002, 0.98, 0.02),
        "int8": (1.05, 0.025, 0.9, 0.3),
        "int8_static": (1.1, 0.1, 0.8, 0.5),
        "full_int8": (1.1, 0.1, 0.8, 0.5),
        "weight_int8": (1.02, 0.02, 0.9, 0.15),
        "weight_int4": (1.25, 0.2, 0.65, 0.8),
        "gguf": (1.1, 0.05, 0.85, 0.3),
        "learned": (1.1, 0.05, 0.85, 0.3),
        "ternary": (1.02, 0.02, 0.9, 0.1),
    }


class _Counter:
    """Steps of a model of 5 tokens whose most likely next token is the last one plus one; its cache is what it has read."""

    spec = types.SimpleNamespace(vocabulary_size=5, max_length=None)

    def __init__(self):
        self.calls = []

    def init_cache(self, count, length, source=None):
        return np.full((count, length), -1)

    def prefill(self, tokens, lengths, cache):
        self.calls.append(("prefill", tokens.shape[1]))
        cache[:, : tokens.shape[1]] = tokens
        return types.SimpleNamespace(logits=self._logits(tokens)[:, -1:]), cache

    def decode_step(self, tokens, cache, index):
        self.calls.append(("decode", tokens.shape[1]))
        assert (cache[:, : index[0]] >= 0).all()
        assert (cache[:, index[0]] == -1).all()
        cache[:, index[0] : index[0] + tokens.shape[1]] = tokens
        return types.SimpleNamespace(logits=self._logits(tokens)), cache

    def _logits(self, tokens):
        return 50.0 * np.eye(5)[(tokens + 1) % 5]


def test_a_row_is_read_in_every_way():
    steps, tokens = _Counter(), np.arange(24).reshape(2, 12).astype("int32") % 5
    (logits,) = logits_of(steps, tokens, prompt=3, singles=4)
    assert steps.calls == [("prefill", 3), ("decode", 4), *[("decode", 1)] * 4]
    np.testing.assert_array_equal(logits.argmax(-1), tokens[:, 3:])
    np.testing.assert_array_equal(sample(_Counter(), np.array([2, 4]), 4), [[2, 3, 4, 0], [4, 0, 1, 2]])


def test_texts_become_rows():
    spec = types.SimpleNamespace(vocabulary_size=9, max_length=4)
    tokenizer = types.SimpleNamespace(encode=lambda text: [ord(each) - ord("a") for each in text])
    assert token_rows(["abcd", [1, 2, 3, 4, 5]], tokenizer, spec).tolist() == [[0, 1, 2, 3], [1, 2, 3, 4]]
    for text, words in (("z", "below 9"), ("a", "two tokens")):
        with pytest.raises(QuantizationError, match=words):
            token_rows([text], tokenizer, spec)
    with pytest.raises(QuantizationError, match="needs a tokenizer"):
        token_rows(["abc"], None, spec)
    assert Evaluation(text="abc").text == ("abc",)


def test_the_change_of_rows():
    expected = np.array([[3.0, 4.0], [30.0, 40.0]])
    assert row_change(expected * 1.1, expected) == pytest.approx(0.1)
    # One row of two is zero: a change of 1, root mean square over two rows.
    assert row_change(expected * [[1], [0]], expected) == pytest.approx(np.sqrt(0.5))
    masked = np.array([[1.0, -1e9], [2.0, -np.inf]])
    assert row_change(masked * [[1.5], [1.5]], masked) != row_change(masked, masked) == 0
    assert np.isnan(row_change(np.array([[1.0, -1e9], [2.0, 0.0]]), masked))
    assert np.isnan(row_change(np.array([np.nan]), np.array([1.0])))


def test_half_of_the_tokens_that_stand_alone_may_differ():
    row = np.ones((1, 1, 5))
    error = ParityError("onnx", "logits", "batch=1", 1.0, 1.0, 1.0)
    half = LoneRows(1.0)
    assert [half.takes(row, change, error) for change in (0.02, 1.5)] == [True, True]
    half.check()
    assert half.takes(row, 1.2, error)
    with pytest.raises(ParityError):
        half.check()
    other = ParityError("onnx", "hidden", "batch=1", 1.0, 1.0, 1.0)
    assert half.takes(row, 0.1, error)  # Two of four, but the only one of another output.
    assert half.takes(row, 1.3, other)
    with pytest.raises(ParityError, match="hidden"):
        half.check()
    # Several rows, numbers that are not finite, and files that are judged by their probes.
    assert not half.takes(np.ones((1, 2, 5)), 0.1, error)
    assert not half.takes(row, float("nan"), error)
    assert not LoneRows(None).takes(row, 0.1, error)


def faulty(source, folder, change):
    """A copy of a bundle whose ONNX weights are changed; its hashes are right."""
    shutil.copytree(source, folder)
    for path in folder.glob("*.onnx"):
        model = onnx.load(str(path))
        arrays = {each.name: numpy_helper.to_array(each).copy() for each in model.graph.initializer}
        change(arrays)
        del model.graph.initializer[:]
        model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in arrays.items())
        onnx.save(model, str(path))
    (folder / "model.weights").unlink(missing_ok=True)
    manifest = json.loads((folder / "manifest.json").read_text())
    write_record(folder, manifest | {"tolerance": 1e9})
    return folder


def _of(arrays, *parts):
    """Quantized arrays of the layers, in order: the scales or the codes of weights."""
    return [name for name in sorted(arrays) if all(part in name for part in parts) and arrays[name].ndim]


def _shifted(arrays):
    for name in [*_of(arrays, "block_1", ".scale"), *_of(arrays, "block_1", ".offset")]:
        arrays[name] = np.roll(arrays[name].reshape(-1), arrays[name].size // 3).reshape(arrays[name].shape)


def _doubled(arrays):
    for name in _of(arrays, "block_1", "attention", ".scale"):
        arrays[name] = arrays[name] * 2


def _zeroed(arrays):
    for name in _of(arrays, "block_1", "feedforward", ".scale"):
        arrays[name] = arrays[name] * 0


def _one_scale(arrays):
    for name in _of(arrays, "block_0", "feedforward", ".scale"):
        arrays[name] = np.full_like(arrays[name], arrays[name].mean() * 1.5)


@pytest.mark.exhaustive
@pytest.mark.parametrize("mode", ["int8", "weight_int4"])
class TestTrainedFile:
    """A small model that has learned a language: its quantized files pass, and fail with one fault."""

    def test_passes(self, behaviors, mode):
        manifest = json.loads((behaviors.bundle(mode) / "manifest.json").read_text())
        for name in ("onnx", "tflite"):
            figures = manifest["artifacts"][name]["behavior"]
            assert figures == behaviors[mode][name]
            assert figures["tokens"] > 200
            assert figures["perplexity"] < LIMITS[mode].perplexity
        report = verify_bundle(behaviors.bundle(mode))
        assert report["onnx"].behavior["divergence"] < LIMITS[mode].divergence
        kept = FloatPredictions.read(behaviors.bundle(mode))
        assert kept.predictions.token_ids.shape == (12, 64)
        assert FILE in manifest["files"]

    @pytest.mark.parametrize("change", [_shifted, _doubled, _zeroed, _one_scale])
    def test_one_fault_is_refused(self, behaviors, tmp_path, mode, change):
        folder = faulty(behaviors.bundle(mode), tmp_path / "bundle", lambda arrays: None)
        verify_bundle(folder, ["onnx"])
        folder = faulty(behaviors.bundle(mode), tmp_path / "faulty", change)
        with pytest.raises((QuantizationError, ParityError)):
            verify_bundle(folder, ["onnx"])


@pytest.mark.exhaustive
def test_a_float_bundle_is_quantized_without_its_model(behaviors, tmp_path, capsys):
    source, target = behaviors.bundle("float"), tmp_path / "quantized"
    before = {path.name: path.stat().st_size for path in source.iterdir()}
    report = quantize(source, target, "int8")
    assert {path.name: path.stat().st_size for path in source.iterdir()} == before
    for name in ("onnx", "tflite"):
        figures, exported = report[name].behavior, behaviors["int8"][name]
        assert figures["divergence"] == pytest.approx(exported["divergence"], rel=0.2, abs=1e-4)
        assert report[name].size < report[name].float_size  # Most of these small files is graph.
    assert set(verify_bundle(target).artifacts) == {"onnx", "tflite"}
    with pytest.raises(InvalidBundleError, match="are quantized already"):
        quantize(target, tmp_path / "again", "fp16")
    with pytest.raises(InvalidBundleError, match="is the float bundle itself"):
        quantize(source, source, "int8")
    assert cli.main(["quantize", str(source), "--out", str(tmp_path / "half"), "--quantize", "fp16"]) == 0
    printed = capsys.readouterr().out
    assert "same token" in printed
    assert "same class" not in printed
