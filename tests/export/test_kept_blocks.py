"""Files whose weights are the blocks of a GGUF file: the same integers and scales, and nothing else passes."""

import pathlib
import shutil
import sys

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from keras_transformer import checkpoints
from keras_transformer.checkpoints.gguf.blocks import decoded
from keras_transformer.checkpoints.gguf.container import Container
from keras_transformer.checkpoints.gguf.layouts import Interleaved
from keras_transformer.export import QuantizationError, WeightError, export, load, quantize, verify_bundle
from keras_transformer.export.data.weights import WeightPair, codes
from keras_transformer.export.onnx.quantization.kept_weights import as_stored
from keras_transformer.export.onnx.weights.dequantize import ConstantReader
from keras_transformer.export.onnx.weights.product_weights import product_weight
from keras_transformer.export.quantization.known_blocks import FileBlocks
from keras_transformer.export.tflite.graph import graphs
from keras_transformer.export.tflite.quantization.kept_blocks import digits
from keras_transformer.export.tflite.tree import read
from keras_transformer.export.verification.quantized.weights import compare, worst_fault
from keras_transformer.quantization.blocks import Blocks

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "checkpoints"))
from gguf_worker import EXHAUSTIVE, KINDS, WORDS, float_file
from variants import exhaustive_but

pytest.importorskip("gguf")
WEIGHTS = ("token_embd", *(f"blk.0.{name}" for name in ("attn_q", "attn_k", "attn_v", "attn_output")))
WEIGHTS += tuple(f"blk.0.{name}" for name in ("ffn_gate", "ffn_up", "ffn_down"))


def blocks_of(file, name):
    """The blocks of a tensor, with the rows of queries and keys in the order of the model."""
    container = Container(file)
    tensor = container.tensors[f"{name}.weight"]
    found = decoded(container.blocks(f"{name}.weight"), tensor.kind)
    if name.endswith(("attn_q", "attn_k")):
        found = found.rows(Interleaved(2).read(np.arange(tensor.shape[0])))
    return found


def unpacked(packed, bits):
    return packed if bits == 8 else np.stack([packed & 15, packed >> 4], axis=-1).reshape(*packed.shape[:2], -1)


ALL = (*KINDS, "Q5_K", "Q4_K_M", "decoder")


@pytest.mark.parametrize("kind", exhaustive_but(ALL, *(each for each in ALL if each not in EXHAUSTIVE)))
def test_onnx_files_have_the_integers_and_scales_of_the_file(blocks, kind):
    assert blocks[kind]["onnx"][0]["unaccounted"] == []
    for path in blocks.bundle(kind).glob("*.onnx"):
        graph = onnx.load(str(path)).graph
        arrays = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
        for name in WEIGHTS:
            expected = blocks_of(blocks.directory / f"{'Q4_1' if kind == 'decoder' else kind}.gguf", name)
            # The one weight of which all three are equal.
            assert any(is_stored(arrays, key, expected) for key in arrays if key.endswith(".scale")), (path.name, name)
        large = [each for each in graph.initializer if each.data_type == 1 and np.prod(each.dims) >= 2048]
        assert [each.name for each in large if not each.name.startswith("sums/") and ".blocks" not in each.name] == []


def is_stored(arrays, key, expected):
    """Whether the arrays of a weight have the integers, scales and minima of blocks, bit for bit."""
    packed, scale = arrays[key.removesuffix(".scale")], arrays[key]
    if scale.shape != expected.scale.shape or packed.ndim != 3:
        return False
    found = unpacked(packed, expected.bits).astype(int)
    middle = 1 << expected.bits - 1
    zero = expected.zero if expected.minimum is None else middle if expected.bits == 4 else 16
    minimum = arrays.get(key.replace(".scale", ".minimum"))
    same = found.shape == expected.codes.shape and (found - middle == expected.codes.astype(int) - zero).all()
    same = same and scale.dtype == expected.scale.dtype and (scale == expected.scale).all()
    return bool(same and (expected.minimum is None or (expected.minimum == minimum.T).all()))


@pytest.mark.parametrize("kind", exhaustive_but(KINDS, "Q4_1", "Q8_0"))
def test_tflite_files_have_the_integers_and_scales_of_the_file(blocks, kind):
    assert blocks[kind]["tflite"][0] == {"equal": 7, "rounded": len(WEIGHTS), "computed": [], "unaccounted": []}
    model = read((blocks.bundle(kind) / "model.tflite").read_bytes())
    stored = [list(int4_weights(graph)) for graph in graphs(model)]
    for name in WEIGHTS:
        expected = blocks_of(blocks.directory / f"{kind}.gguf", name)
        for found in stored:
            assert any(is_the_same(*each, expected) for each in found), name


def int4_weights(graph):
    """The integers and scales of a graph's blocks."""
    buffers = graph.model.buffers
    for tensor in graph.tensors:
        if tensor.quantization is not None and tensor.quantization.details is not None:
            packed = np.asarray(buffers[tensor.buffer].data, "uint8")
            numbers = np.stack([packed & 15, packed >> 4], axis=-1).astype("int8")
            numbers = np.where(numbers > 7, numbers - 16, numbers).reshape(tensor.shape)
            scales = graph.tensors[tensor.quantization.details.scales]
            yield numbers, np.asarray(buffers[scales.buffer].data, "uint8").view("float16").reshape(scales.shape)


def is_the_same(numbers, scale, expected):
    """Whether 4-bit integers, or pairs of them, are the codes of blocks, with the magnitudes of their scales."""
    count, blocks, width = expected.codes.shape
    if expected.bits == 8:
        high, low = np.split(numbers, 2, axis=1) if numbers.size == 2 * expected.codes.size else (None, None)
        if high is None:
            return False
        numbers = 16 * high.astype(int) + low + 8
        scale = scale[:, blocks:]
    if numbers.shape != (count, blocks * width) or scale.shape != (count, blocks):
        return False
    zero = expected.zero if expected.minimum is None else 8 if expected.bits == 4 else 16
    wanted = expected.codes.astype(int) - zero
    wanted = np.where(np.signbit(expected.scale)[..., None], ~wanted, wanted)
    has_scale = expected.scale != 0
    same_scale = (scale == np.abs(expected.scale))[has_scale].all()
    return bool(same_scale and (numbers.reshape(wanted.shape) == wanted)[has_scale].all())


def test_files_compute_what_the_model_of_the_file_computes(blocks):
    model = checkpoints.from_gguf(blocks.directory / "Q8_0.gguf", verbose=0)
    ids = np.random.default_rng(0).integers(0, WORDS, (2, 9), "int32")
    expected = np.asarray(model({"token_ids": ids, "padding_mask": np.ones(ids.shape, bool)}))
    for name in ("onnx", "tflite"):
        found = load(blocks.bundle("Q8_0"), name)(token_ids=ids, padding_mask=np.ones(ids.shape, bool))
        found = found["logits"] if isinstance(found, dict) else found
        assert 0 < np.abs(found - expected).max() < 0.03 * np.abs(expected).max()


def test_a_bundle_is_verified_again(blocks):
    report = verify_bundle(blocks.bundle("Q4_1"))
    assert {*report.artifacts} == {"onnx", "tflite"}


def test_a_changed_weight_can_stay_float(blocks):
    assert blocks["kept"] == {
        "equal": 4,
        "rounded": len(WEIGHTS) - 1,
        "computed": [],
        "unaccounted": [],
    }  # A SavedModel.
    arrays = onnx.load(str(blocks.directory / "kept" / "model.onnx")).graph.initializer
    kept = [each.name for each in arrays if each.data_type == 1 and np.prod(each.dims) == 64 * 64]
    assert [name.rsplit("/", 2)[-2] for name in kept] == ["query"]


def test_a_moved_minimum_is_named(blocks, tmp_path):
    """A third of a step would pass as rounding in other modes."""
    path = shutil.copytree(blocks.bundle("Q4_1"), tmp_path / "bundle") / "model.onnx"
    model = onnx.load(str(path))
    tensors = {each.name: each for each in model.graph.initializer}
    name = next(each for each in tensors if each.endswith("feedforward/hidden/kernel.blocks_by_column"))
    minimum, scale = (numpy_helper.to_array(tensors[f"{name}.{part}"]).copy() for part in ("minimum", "scale"))
    minimum[1, 3] += scale[3, 1] / np.float16(3)
    tensors[f"{name}.minimum"].CopyFrom(numpy_helper.from_array(minimum, f"{name}.minimum"))
    onnx.save(model, str(path))
    reader = ConstantReader(path)
    product = next(each.output[0] for each in model.graph.node if name in each.input)
    result = next(each.output[0] for each in model.graph.node if product in each.input)
    expected = blocks_of(blocks.directory / "Q4_1.gguf", "blk.0.ffn_up").values.T
    pair = WeightPair("hidden", expected, product_weight(reader, reader.find(result)))
    assert compare("onnx", [pair])["rounded"] == 1
    with pytest.raises(
        WeightError, match=r"hidden.*at \[\d+, 3\] by 0.33. steps .*: the codes are kept, and not rounded"
    ):
        compare("onnx", [pair], is_kept=True)


# Blocks by hand.


def test_kept_codes_may_not_be_clipped():
    found = codes(np.array([0, 15], "uint8"), 15)
    assert worst_fault(np.float32([-3.0, 15.0]), found) is None
    assert worst_fault(np.float32([-3.0, 15.0]), found, is_kept=True) == ((0,), 3.0)


def test_digits_have_positive_scales():
    numbers = np.array([[[-8, 7, 0], [1, 2, 3], [-8, 5, 7]]])
    scale = np.array([[-0.5, 0.25, 0.0]], "float16")
    given = Blocks((numbers + 8).astype("uint8"), scale, None, 8, 4)
    found = digits(given)
    assert found.codes.tolist() == [[7, -8, -1, 1, 2, 3, 0, 0, 0]]
    assert found.scale.tolist() == [[0.5, 0.25, 2.0**-14]]
    assert found.offset.tolist() == [[0.5, 0, 0]]
    values = found.codes.reshape(1, 3, 3) * found.scale[..., None] + found.offset[..., None]
    assert values.reshape(1, -1).tolist() == given.values.tolist()


@pytest.mark.parametrize("scale", [0.5, -0.5])
def test_two_digits_are_a_code_of_8_bits(scale):
    given = Blocks(np.arange(256, dtype="uint8").reshape(1, 8, 32), np.full((1, 8), scale, "float16"), None, 128, 8)
    found = digits(given)
    assert (found.codes.min(), found.codes.max()) == (-8, 7)
    high, low = np.split((found.codes.reshape(1, -1, 32) * found.scale[..., None].astype("float32")), 2, axis=1)
    assert (high + low + found.offset[..., None]).reshape(1, -1).tolist() == given.values.tolist()


def test_codes_with_minima_are_stored_around_their_middle():
    half = np.array([[0.5]], "float16")
    packed, scale, minimum = as_stored(Blocks(np.array([[[0, 15, 8, 1]]], "uint8"), half, -half, 0, 4))
    assert packed.tolist() == [[[0 | 15 << 4, 8 | 1 << 4]]]
    assert (scale.tolist(), minimum.tolist()) == ([[0.5]], [[-0.5]])
    codes_of_5_bits = Blocks(np.array([[[0, 31, 16]]], "uint8"), half, -half, 0, 8)
    assert (as_stored(codes_of_5_bits)[0] - 128.0).tolist() == [[[-16, 15, 0]]]


# What is found in a file.


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("file")
    float_file(folder / "float.gguf", 64)
    model = checkpoints.from_gguf(folder / "float.gguf", verbose=0)
    checkpoints.to_gguf(model, folder / "a.gguf", quantize="Q4_0", verbose=0)
    return folder / "a.gguf"


def test_rows_are_found_in_any_order_and_only_unchanged(file):
    found, container = FileBlocks(file), Container(file)
    rows = container.read("blk.0.ffn_up.weight")
    order = np.random.default_rng(1).permutation(len(rows))[:50]
    name, indices = found.locate(rows[order])
    assert (name, indices.tolist()) == ("blk.0.ffn_up.weight", order.tolist())
    np.testing.assert_array_equal(found.find(rows[order]).values, rows[order])
    changed = rows.copy()
    changed[7, 11] = np.nextafter(changed[7, 11], np.float32(9))
    assert found.find(changed) is None
    assert found.find(np.ascontiguousarray(rows.T)) is None  # Blocks lie along the rows.
    assert found.find(np.concatenate([rows[:1], container.read("blk.0.ffn_gate.weight")[1:2]])) is None
    # Vectors and floats have no blocks.
    assert found.find(container.read("blk.0.ffn_norm.weight")[None]) is None


# Refusals, before anything is converted.


def test_a_changed_model_is_refused(file, tmp_path):
    model = checkpoints.from_gguf(file, verbose=0)
    weight = next(each for each in model.variables if each.path.endswith("value/kernel"))
    values = np.array(weight)
    values.flat[5] *= 1.001
    weight.assign(values)
    with pytest.raises(QuantizationError, match=r"value/kernel: not in .*a\.gguf with these values.*keep_float"):
        export(model, tmp_path / "bundle", ["onnx"], quantize="gguf")
    half = checkpoints.from_gguf(file, dtype="bfloat16", verbose=0)
    with pytest.raises(QuantizationError, match=r"and 5 more: not in .*not loaded in float32"):
        export(half, tmp_path / "bundle", ["onnx"], quantize="gguf")
    assert not (tmp_path / "bundle").exists()


def test_a_model_of_another_source_needs_a_file(file, tmp_path):
    model = checkpoints.from_gguf(file, verbose=0)
    assert model.checkpoint.gguf == file
    del model.checkpoint
    with pytest.raises(QuantizationError, match=r"was not read by from_gguf.*Gguf\(file\)"):
        export(model, tmp_path / "bundle", ["onnx"], quantize="gguf")
    with pytest.raises(QuantizationError, match="'gguf' needs the file"):
        quantize(tmp_path, tmp_path / "bundle", "gguf")


def test_formats_without_such_blocks_are_refused(tmp_path):
    float_file(tmp_path / "float.gguf", 256)
    model = checkpoints.from_gguf(tmp_path / "float.gguf", verbose=0)
    with pytest.raises(QuantizationError, match="has no weight of the model in blocks of Q4_0, Q4_1"):
        export(model, tmp_path / "bundle", ["onnx"], quantize="gguf")
    checkpoints.to_gguf(model, tmp_path / "a.gguf", quantize="Q6_K", verbose=0)
    with pytest.raises(QuantizationError, match=r"tflite: .*: blocks of Q6_K, .*formats=\['onnx'\]"):
        export(checkpoints.from_gguf(tmp_path / "a.gguf", verbose=0), tmp_path / "bundle", ["tflite"], quantize="gguf")
