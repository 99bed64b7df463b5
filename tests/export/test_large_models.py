"""Quantized files of models whose float files are not run, and of models in 16 bits, converted weight by weight."""

import json
import weakref

import keras
import numpy as np
import pytest

from keras_transformer import models, tasks
from keras_transformer.backend import keras_private
from keras_transformer.export import ExportOptions, GenerationOptions, Int8, export, request, verify_bundle
from keras_transformer.export.data.lazy_array import LazyArray, LazyArrays, mapped
from keras_transformer.export.data.weights import codes
from keras_transformer.export.quantization import block_quantize
from keras_transformer.export.spec.float32 import float32_twin, streamed_twin
from keras_transformer.export.tflite import tree
from keras_transformer.export.verification.quantized.float_predictions import FloatPredictions
from keras_transformer.export.verification.quantized.weights import worst_fault
from keras_transformer.export.writing.quantizing import NOT_RUN

FORMATS, PRECISIONS = ["onnx", "tflite"], ["int8", "weight_int4"]


@pytest.fixture(scope="module")
def model():
    """A small Llama whose weights are in bfloat16."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("bfloat16")
    try:
        keras.utils.set_random_seed(0)
        backbone = models.Llama(models.Size(2, 64, 4, 96), 100, num_key_value_heads=2)
        return tasks.LanguageModel(backbone, tie_embeddings=False)
    finally:
        keras.config.set_dtype_policy(before)


def contents(path):
    """The content of a file of weights, or of the buffers of a TFLite file."""
    if path.suffix != ".tflite":
        return path.read_bytes()
    return [bytes(np.asarray(each.data)) for each in tree.read_file(path).buffers if tree.size_of(each)]


class _LiveReads:
    """How many bytes of lazy arrays are in memory at once, at most, and of how many arrays."""

    def __init__(self):
        self.live, self.most, self.count = 0, 0, 0

    def read(self, read, lazy, *arguments):
        array = read(lazy, *arguments)
        if isinstance(array, np.ndarray) and array.nbytes:
            self.live, self.count = self.live + lazy.nbytes, self.count + 1
            self.most = max(self.most, self.live)
            weakref.finalize(array, self._freed, lazy.nbytes)
        return array

    def _freed(self, count):
        self.live -= count


@pytest.fixture(scope="module")
def folders(model, tmp_path_factory):
    """Bundles of a model that is large, and of the same model as a small one, and the `_LiveReads` of the first."""
    reads, read, folder = _LiveReads(), LazyArray.__array__, tmp_path_factory.mktemp("large")
    # Masks of fixed shapes are smaller than the weights then.
    generation = GenerationOptions(static_length=32, prefill_buckets=(8,))
    options = {"quantize": PRECISIONS, "progress": False, "options": ExportOptions(generation=generation)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LazyArray, "__array__", lambda *arguments: reads.read(read, *arguments))
        patch.setattr(request, "LARGEST_RUN", 0)
        patch.setattr(tree, "_LARGEST", 2**16)
        export(model, folder / "large", FORMATS, **options)
    export(model, folder / "small", FORMATS, **options)
    return folder, reads


@pytest.mark.exhaustive
class TestExport:
    @pytest.mark.parametrize("precision", PRECISIONS)
    @pytest.mark.parametrize(("name", "file"), [("onnx", "model.weights"), ("tflite", "model.tflite")])
    def test_integers_and_scales_are_those_of_the_path_through_proven_float_files(self, folders, name, file, precision):
        paths = [folders[0] / size / precision for size in ("large", "small")]
        weights, proven = (contents(path / file) for path in paths)
        assert weights == proven
        records = [json.loads((path / "manifest.json").read_text())["artifacts"][name] for path in paths]
        assert records[0]["weights"] == records[1]["weights"]
        assert records[0]["weights"]["rounded"] > 0
        assert not records[0]["weights"]["unaccounted"]
        assert [record.get("float_files") for record in records] == [NOT_RUN, None]
        assert sorted(path.name for path in paths[0].iterdir()) == sorted(path.name for path in paths[1].iterdir())

    @pytest.mark.parametrize("precision", PRECISIONS)
    def test_the_model_predicts_what_its_float_files_predict(self, folders, precision):
        large, small = (FloatPredictions.read(folders[0] / size / precision).predictions for size in ("large", "small"))
        np.testing.assert_array_equal(large.token_ids, small.token_ids)
        np.testing.assert_allclose(large.next_log_probs, small.next_log_probs, atol=1e-4)
        report = verify_bundle(folders[0] / "large" / precision)
        assert all(report[name].behavior["divergence"] < 0.2 for name in FORMATS)

    def test_a_few_weights_are_in_memory_at_a_time(self, folders, model):
        sizes = sorted((4 * int(np.prod(each.shape)) for each in model.variables), reverse=True)
        reads = folders[1]
        assert reads.count > 4 * len(sizes)
        assert max(sizes) <= reads.most <= 4 * max(sizes) < sum(sizes) / 2


class TestChoice:
    def test_float_files_of_large_models_are_not_run(self, model, monkeypatch):
        int8 = Int8()
        assert request.runs_float_files(model, ["onnx"], [int8])
        monkeypatch.setattr(request, "LARGEST_RUN", 4 * model.count_params() - 1)
        assert not request.runs_float_files(model, FORMATS, [int8])
        assert request.runs_float_files(model, ["onnx"], [int8, None])
        assert request.runs_float_files(model, ["onnx", "saved_model"], [int8])


class TestStreamedTwin:
    def test_computes_what_the_copied_twin_computes_without_values_of_its_own(self, model):
        twin, copy = streamed_twin(model), float32_twin(model)
        token_ids = np.arange(12, dtype="int32").reshape(2, 6)
        inputs = {"token_ids": token_ids, "padding_mask": np.ones((2, 6), bool)}
        np.testing.assert_array_equal(np.asarray(twin(inputs)), np.asarray(copy(inputs)))
        assert twin(inputs).dtype == "float32"
        assert not any(map(keras_private.has_value, twin.variables))

    def test_a_float32_model_is_its_own_twin(self):
        dense = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
        assert streamed_twin(dense) is dense


class TestLazyArrays:
    def test_reads_each_time_and_keeps_nothing(self):
        reads = []
        lazy = LazyArray(lambda: reads.append(1) or np.arange(6.0).reshape(2, 3), (2, 3), "float64")
        turned = lazy.map(np.transpose)
        assert (turned.shape, turned.size, turned.nbytes, len(lazy), len(reads)) == ((3, 2), 6, 48, 2, 0)
        np.testing.assert_array_equal(np.asarray(turned), np.arange(6.0).reshape(2, 3).T)
        arrays = LazyArrays({"lazy": lazy, "plain": np.ones(2)})
        assert arrays["lazy"].sum() + arrays["plain"].sum() == 17
        assert (len(arrays), len(reads)) == (2, 2)

    def test_keys_tell_equal_arrays(self, tmp_path):
        path = tmp_path / "numbers"
        np.arange(8, dtype="float32").tofile(path)
        first, again, other = (mapped(path, offset, (2, 2), "float32") for offset in (0, 0, 16))
        assert first.key == again.key != other.key
        np.testing.assert_array_equal(np.asarray(other), [[4, 5], [6, 7]])
        assert first.map(np.transpose, "turned").key == again.map(np.transpose, "turned").key
        assert first.map(np.transpose).key != again.map(np.transpose).key


class TestParts:
    """Large weights are quantized and compared in parts."""

    def test_parts_are_quantized_as_the_whole(self, monkeypatch):
        rows = np.random.default_rng(0).normal(size=(70, 96)).astype("float32")
        functions = (
            lambda: block_quantize.by_channel(rows.T),
            lambda: block_quantize.by_block(rows, 8, 32),
            lambda: block_quantize.by_block(rows, 4, 32),
            lambda: block_quantize.by_offset_block(rows, 32),
        )
        whole = [function() for function in functions]
        monkeypatch.setattr(block_quantize, "_MOST", 96 * 16)
        for function, expected in zip(functions, whole, strict=True):
            for got, wanted in zip(function(), expected, strict=True):
                np.testing.assert_array_equal(got, wanted)
                assert got.dtype == wanted.dtype

    def test_the_worst_fault_of_all_parts_is_found(self, monkeypatch):
        numbers = np.random.default_rng(0).integers(0, 16, (40, 8)).astype("uint8")
        expected = numbers * np.linspace(0.5, 2, 40, dtype="float32")[:, None]
        expected[3, 1] += 6
        expected[33, 5] -= 20
        found = codes(numbers, 15).scaled(np.linspace(0.5, 2, 40, dtype="float32")[:, None])
        whole = worst_fault(expected, found)
        monkeypatch.setattr("keras_transformer.export.verification.quantized.weights._MOST", 8 * 3)
        assert worst_fault(expected, found) == whole
        assert whole[0] == (33, 5)
        assert worst_fault(found.values, found) is None
