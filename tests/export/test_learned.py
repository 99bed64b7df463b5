"""Files whose weights are the integers and scales that were chosen for a model, and nothing else passes."""

import re

import numpy as np
import onnx
import pytest
from learned_worker import BYTES, EXHAUSTIVE, NETWORK, network
from onnx import numpy_helper
from variants import exhaustive_but

from keras_transformer.export import Learned, QuantizationError, WeightError, export, load, verify_bundle
from keras_transformer.export.commands import main as cli
from keras_transformer.export.data.weights import WeightPair, codes
from keras_transformer.export.quantization.known_blocks import LearnedBlocks
from keras_transformer.export.tflite.graph import graphs
from keras_transformer.export.tflite.tree import read, schema
from keras_transformer.export.verification.quantized.learned_integers import LearnedIntegers
from keras_transformer.export.verification.quantized.weights import compare
from keras_transformer.quantization import Blocks, QuantizedWeights, WeightScheme, quantize_weights
from keras_transformer.quantization.rounding import round_rows

# The folder of each case, and the result of the worker.
FOLDERS = {
    "decoder": ("decoder", "decoder"),
    "encoder": ("encoder", "encoder"),
    "network": ("network/learned", "network"),
    "again": ("again", "network"),
    "normalized": ("normalized", "normalized"),
}


def numbers_of(blocks):
    """The integers of rows, without what minima add."""
    zero = 8 if blocks.minimum is not None else blocks.zero
    return (blocks.codes.astype(int) - zero).reshape(len(blocks.codes), -1)


# For each weight of a file its integers `(N, K)`, scales `(N, blocks)` and minima `(N, blocks)`.


def in_onnx(path):
    arrays = {each.name: numpy_helper.to_array(each) for each in onnx.load(str(path)).graph.initializer}
    for key in [key for key in arrays if key.endswith(".scale")]:
        name = key.removesuffix(".scale")
        packed, scale, minimum = arrays[name], arrays[key], arrays.get(f"{name}.minimum")
        minimum = None if minimum is None else minimum.T
        if packed.ndim == 2:
            yield packed.T.astype(int) - 128, scale[:, None], minimum
            continue
        pairs = np.stack([packed & 15, packed >> 4], axis=-1)
        for numbers in (packed.astype(int) - 128, pairs.astype(int) - 8):
            yield numbers.reshape(len(packed), -1), scale, minimum


def in_tflite(path):
    model, types = read(path.read_bytes()), schema().TensorType
    for graph in graphs(model):
        for tensor in graph.tensors:
            parameters, data = tensor.quantization, model.buffers[tensor.buffer].data
            if tensor.type not in (types.INT4, types.INT8) or parameters is None or data is None:
                continue
            data = np.asarray(data, "uint8")
            numbers = data.view("int8").astype(int)
            if tensor.type == types.INT4:
                numbers = np.stack([data & 15, data >> 4], axis=-1).astype(int).reshape(-1)[: np.prod(tensor.shape)]
                numbers = np.where(numbers > 7, numbers - 16, numbers)
            numbers = numbers.reshape(tensor.shape)
            if parameters.details is None:
                yield numbers, np.asarray(parameters.scale, "float32")[:, None], None
                continue
            scales = graph.tensors[parameters.details.scales]
            scale = np.asarray(model.buffers[scales.buffer].data, "uint8").view("float16").reshape(scales.shape)
            yield numbers, scale, None
            if numbers.shape[1] % 2 == 0 and scale.shape[1] % 2 == 0:  # The digits of 8 bits.
                high, low = np.split(numbers, 2, axis=1)
                yield 16 * high + low + 8, scale[:, scale.shape[1] // 2 :], None


def in_saved_model(path):
    import tensorflow as tf

    reader = tf.train.load_checkpoint(str(path / "variables" / "variables"))
    end = ".ATTRIBUTES/VARIABLE_VALUE"
    for key in reader.get_variable_to_shape_map():
        name = key.removesuffix(f"codes/{end}")
        if not key.startswith("kept/") or name == key:
            continue
        packed, scale = reader.get_tensor(key), reader.get_tensor(f"{name}scale/{end}")
        has_minimum = reader.has_tensor(f"{name}minimum/{end}")
        minimum = reader.get_tensor(f"{name}minimum/{end}") if has_minimum else None
        pairs = np.stack([packed & 15, packed >> 4], axis=-1).astype(int)
        for numbers in (packed.astype(int) - 128, pairs - 8):
            yield numbers.reshape(len(packed), -1), scale, minimum


READERS = {
    "onnx": ("*.onnx", in_onnx),
    "tflite": ("*.tflite", in_tflite),
    "saved_model": ("saved_model", in_saved_model),
}


# `quantize` takes no SavedModels.
CASES = [(case, format) for case in FOLDERS for format in READERS if (case, format) != ("again", "saved_model")]


@pytest.mark.parametrize("case, format", exhaustive_but(CASES, *(each for each in CASES if each[0] not in EXHAUSTIVE)))
def test_files_have_the_integers_and_scales(learned, case, format):
    (folder, result), (pattern, stored_in) = FOLDERS[case], READERS[format]
    found = learned[result] if result == case != "network" else learned[result][folder]
    wanted = QuantizedWeights.load(learned.directory / f"{result}.safetensors")
    stored = [each for path in (learned.directory / folder).glob(pattern) for each in stored_in(path)]
    for name, blocks in wanted.items():
        # The minima of TFLite are offsets, whose sums with codes the gate compares.
        assert any(is_equal(each, blocks, format != "tflite") for each in stored), name
    # Graphs of steps may name a weight differently.
    assert found[format]["weights"]["rounded"] >= len(wanted)
    assert found[format]["weights"]["unaccounted"] == []
    assert found[format]["quantization"] == "learned"


def is_equal(stored, blocks, has_minimum):
    (numbers, scale, minimum), wanted = stored, numbers_of(blocks)
    width = wanted.shape[1]
    if len(numbers) != len(wanted) or numbers.shape[1] < width or scale.shape != blocks.scale.shape:
        return False
    same = (numbers[:, :width] == wanted).all() and not numbers[:, width:].any()
    same = same and scale.dtype == blocks.scale.dtype and (scale == blocks.scale).all()
    if blocks.minimum is None or not has_minimum:
        return bool(same and minimum is None)
    return bool(same and minimum is not None and (minimum == blocks.minimum).all())


@pytest.mark.parametrize("format", READERS)
def test_files_compute_what_the_model_computes(learned, format):
    learned["network"]
    folder = learned.directory / "network" / "learned"
    with np.load(learned.directory / "network.npz") as arrays:
        x, expected = arrays["x"], arrays["y"]
    (found,) = load(folder, format)({"x": x}).values()
    error = np.abs(found - expected).max() / np.abs(expected).max()
    # TensorFlow computes with floats; the kernels of the others round activations to 8 bits.
    assert error < 1e-6 if format == "saved_model" else 1e-6 < error < 0.02


def test_static_ranges_compute_what_was_trained(learned):
    ranges = learned["static"]
    largest = [ranges[f"{name}/kernel"] for name in ("first", "second", "third")]
    assert len(ranges) == 3
    assert QuantizedWeights.load(learned.directory / "static.safetensors").input_ranges == ranges
    with np.load(learned.directory / "static.npz") as arrays:
        x, trained, floats = arrays["x"], arrays["trained"], arrays["float"]
    assert np.abs(x).max() > 1.5 * largest[0]
    (found,) = load(learned.directory / "static", "onnx")({"x": x}).values()
    scale = np.abs(trained).max()
    # A sum that lies between two steps of the next product may be rounded to either.
    differences = np.abs(found - trained) / scale
    assert np.median(differences.max(axis=1)) < 1e-6
    assert differences.max() < 0.01
    assert np.abs(floats - trained).max() > 0.05 * scale
    graph = onnx.load(str(next((learned.directory / "static").glob("*.onnx")))).graph
    arrays = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
    steps = [arrays[node.input[1]].item() for node in graph.node if node.op_type == "QuantizeLinear"]
    np.testing.assert_allclose(steps, np.array(largest) / 127, rtol=1e-6)


@pytest.mark.parametrize("case", exhaustive_but(["decoder", "encoder"], "decoder"))
def test_bundles_are_verified_again(learned, case):
    learned[case]
    assert {*verify_bundle(learned.directory / case).artifacts} == {*READERS}


def test_the_float_files_of_a_list_stay_float(learned):
    learned["network"]
    graph = onnx.load(learned.directory / "network" / "float32" / "model.onnx").graph
    assert {each.data_type for each in graph.initializer if np.prod(each.dims) >= 2048} == {onnx.TensorProto.FLOAT}
    assert verify_bundle(learned.directory / "network" / "learned").artifacts["tflite"].parity


def test_a_float_bundle_of_other_values_is_refused(learned):
    message = learned["network"]["refused"]
    assert re.search(
        r"(onnx|tflite): network/second/kernel: the file does not have the integers of .*others.safetensors", message
    )
    assert not (learned.directory / "refused").exists()


# Refusals, before anything is converted.


@pytest.fixture
def quantized():
    model = network()
    return model, quantize_weights(model, NETWORK)


def test_a_changed_weight_is_refused_by_name(quantized, tmp_path):
    model, weights = quantized
    kernel = model.get_layer("third").kernel
    values = np.array(kernel)
    values[3, 5] = np.nextafter(values[3, 5], np.float32(9))
    kernel.assign(values)
    for source in ("learned", Learned(keep_float=("*/first/*",))):
        with pytest.raises(QuantizationError, match="^network/third/kernel: the model does not have the values.*apply"):
            export(model, tmp_path / "bundle", ["onnx"], quantize=["float32", source])
    weights.apply(model)
    kernel.assign(values[:, ::-1])  # Columns are rows of the matrix: their order does not matter to the files.
    with pytest.raises(QuantizationError, match="^network/third/kernel"):
        export(model, tmp_path / "bundle", ["onnx"], quantize="learned")
    assert not (tmp_path / "bundle").exists()


def test_weights_are_needed(tmp_path):
    model = network()
    with pytest.raises(QuantizationError, match=r"'network' has no quantized weights.*Learned\(file\)"):
        export(model, tmp_path / "bundle", ["onnx"], quantize="learned")
    (tmp_path / "other.safetensors").write_bytes(b"other")
    for name in ("other", "missing"):
        chosen = Learned(tmp_path / f"{name}.safetensors")
        with pytest.raises(QuantizationError, match=rf"{name}\.safetensors' is no file of QuantizedWeights"):
            export(model, tmp_path / "bundle", ["onnx"], quantize=chosen)


@pytest.mark.parametrize(
    "words, message",
    [
        (["--quantize", "learned"], "--quantize learned needs --weights"),
        (["--quantize", "int8", "--weights", "a"], "--weights is for --quantize learned"),
        (["--weights", "a"], "--weights needs --quantize"),
        (["--quantize", "learned", "--weights", "missing"], "'missing' is no file of QuantizedWeights"),
    ],
)
def test_the_command_line_needs_the_weights(learned, capsys, words, message):
    learned["network"]
    bundle = learned.directory / "network" / "float32"
    assert cli.main(["quantize", str(bundle), "--out", str(learned.directory / "cli"), *words]) == 1
    assert message in capsys.readouterr().err


def test_the_command_line_takes_a_file(learned, capsys):
    learned["network"]
    paths = [str(learned.directory / each) for each in ("network/float32", "cli", "network.safetensors")]
    words = ["quantize", paths[0], "--out", paths[1], "--quantize", "learned", "--weights", paths[2]]
    assert cli.main([*words, "--keep-float", "*second*"]) == 0
    names = [each.name for each in onnx.load(f"{paths[1]}/model.onnx").graph.initializer if each.data_type == 1]
    assert "network/second/kernel" in names
    assert "network/first/kernel" not in names


# The gate: values that are equal up to rounding, and scales bit for bit.


@pytest.fixture
def checked():
    blocks = round_rows(np.random.default_rng(0).normal(size=(8, 64)), WeightScheme(4, 32))
    weights = QuantizedWeights({"a/kernel": blocks, "b/kernel": round_rows(np.eye(8, 64), BYTES)})
    quantization = Learned(weights)
    return weights, lambda *arguments: LearnedIntegers("onnx", quantization, *arguments)


def pair(blocks, factor=1.0):
    """A weight as a file has it, with scales that are multiples, and codes that make up for it."""
    scale = np.repeat(blocks.scale.astype("float32"), blocks.codes.shape[2], axis=1) * np.float32(factor)
    found = codes(numbers_of(blocks) / np.float32(factor)).scaled(scale)
    return WeightPair("kernel", blocks.values.T, found.map(np.transpose))


def test_scales_are_compared_bit_for_bit(checked):
    weights, gate = checked
    pairs = [pair(each) for each in weights.values()]
    compare("onnx", pairs, True, accepted := gate())
    accepted.check_all()
    with pytest.raises(WeightError, match="does not have the scales that were chosen for 'a/kernel'"):
        compare("onnx", [pair(weights["a/kernel"], 0.5)], True, gate())


def test_every_weight_must_be_there(checked):
    weights, gate = checked
    only = gate()
    compare("onnx", [pair(weights["b/kernel"])], True, only)
    with pytest.raises(QuantizationError, match="onnx: a/kernel: the file does not have the integers of the quantized"):
        only.check_all()
    read = gate(["b/kernel"])  # The graphs do not read the other one.
    compare("onnx", [pair(weights["b/kernel"])], True, read)
    read.check_all()


def test_rows_of_equal_values_keep_their_scales():
    """2 times 0.5 is 1 times 1."""
    codes = np.full((3, 1, 32), 8, "uint8") + np.array([2, 1, 2], "uint8")[:, None, None]
    blocks = Blocks(codes, np.array([[0.5], [1.0], [0.5]], "float16"), None, 8, 4)
    known = LearnedBlocks(QuantizedWeights({"a": blocks, "b": blocks}), "weights")
    found = known.find(np.ones((3, 32), "float32"))
    np.testing.assert_array_equal(found.scale, blocks.scale)
    np.testing.assert_array_equal(found.codes, blocks.codes)
    assert known.names_of(np.ones((32, 3), "float32")) == ["a", "b"]
