"""The weights of quantized files against the float ones: clean files pass, and one planted fault is named."""

import pathlib
import shutil

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from keras_transformer.export import Float16, Int8, Int8Static, WeightError, WeightInt4, WeightInt8
from keras_transformer.export.bundle.manifest import read_manifest
from keras_transformer.export.data.export_spec import ExportSpec
from keras_transformer.export.data.weights import Dequantized, WeightPair, codes
from keras_transformer.export.formats import get_format
from keras_transformer.export.onnx.quantization.quantize import quantize_files
from keras_transformer.export.tflite.graph import graphs
from keras_transformer.export.tflite.tree import read, schema, size_of, write
from keras_transformer.export.verification.quantized.weights import check_quantized_weights, compare, worst_fault

MODES = {
    "fp16": Float16(),
    "int8": Int8(),
    "weight_int8": WeightInt8(),
    "weight_int4": WeightInt4(block_size=64),
}
FILES = {"serve": "model.onnx"}


def quantized(float_bundle, folder, name, mode):
    """A copy of a float bundle with quantized files of one format; returns the names of the files."""
    shutil.copytree(float_bundle, folder)
    files = dict(read_manifest(float_bundle).artifact(name).signatures)
    get_format(name).quantize(ExportSpec({}, quantization=MODES[mode]), folder, files)
    return files


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["onnx", "tflite"])
def test_every_weight_of_a_clean_file_is_accounted_for(behaviors, tmp_path, name, mode):
    source = behaviors.bundle("float")
    files = quantized(source, tmp_path / "bundle", name, mode)
    found = check_quantized_weights(name, source, tmp_path / "bundle", files)
    assert found["unaccounted"] == []
    # Two blocks of four projections of attention and two of the feed-forward, and the table.
    assert found["rounded"] >= 13
    assert found["equal"] >= 10  # Norms and biases stay float.
    again = check_quantized_weights(name, source, source, files)
    assert again["rounded"] == 0
    assert again["equal"] > found["equal"]


def edit_onnx(folder, change):
    """Changes the arrays and the nodes of all ONNX files of a folder."""
    for path in folder.glob("*.onnx"):
        model = onnx.load(str(path))
        arrays = {each.name: numpy_helper.to_array(each).copy() for each in model.graph.initializer}
        change(arrays, model.graph)
        del model.graph.initializer[:]
        model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in arrays.items())
        onnx.save(model, str(path))


def first(arrays, *parts):
    return next(name for name in sorted(arrays) if all(part in name for part in parts) and arrays[name].size > 1)


def codes_of(arrays):
    """The codes of a product of the second block."""
    return next(
        each
        for each in sorted(arrays)
        if "block_1" in each and arrays[each].dtype.kind in "iu" and arrays[each].ndim > 1
    )


def one_code(arrays, graph):
    name = codes_of(arrays)
    position = tuple(size // 2 for size in arrays[name].shape)
    arrays[name][position] ^= 2


def one_scale(arrays, graph):
    name = first(arrays, "block_1", ".scale")
    arrays[name].reshape(-1)[arrays[name].size // 2] *= arrays[name].dtype.type(1.01)


def coarse_scale(arrays, graph):
    """With 16 codes, a smaller change than this is within half a step."""
    name = first(arrays, "block_1", ".scale")
    arrays[name].reshape(-1)[arrays[name].size // 2] *= arrays[name].dtype.type(1.08)


def half_rows(arrays, graph):
    name = first(arrays, "block_1", ".fp16")
    arrays[name][[3, 5]] = arrays[name][[5, 3]]


def scale_axis(arrays, graph):
    name = next(
        each for each in sorted(arrays) if "block_1" in each and ".scale" in each and 1 not in arrays[each].shape
    )
    arrays[name] = np.ascontiguousarray(arrays[name].T).reshape(arrays[name].shape)


def rows(arrays, graph):
    name = codes_of(arrays)
    arrays[name][[3, 5]] = arrays[name][[5, 3]]


def nibbles(arrays, graph):
    name = codes_of(arrays)
    arrays[name] = arrays[name] << 4 | arrays[name] >> 4


def lost_offset(arrays, graph):
    name = first(arrays, "block_1", ".offset")
    arrays[name].reshape(-1)[np.abs(arrays[name]).argmax()] = 0


def no_offsets(arrays, graph):
    """The sum with the product of the offsets becomes the product of the codes alone."""
    for node in graph.node:
        if node.op_type == "Gemm" and len(node.input) == 3 and node.input[2] not in arrays:
            node.op_type = "Identity"
            del node.input[:2]


def zero_point(arrays, graph):
    for node in graph.node:
        if node.op_type == "MatMulNBits":
            count, blocks = node_sizes(node)
            arrays["zeros"] = np.full(count * ((blocks + 1) // 2), 0x77, "uint8")
            node.input.append("zeros")
            return


def shifted_zero(arrays, graph):
    """Another number is taken off the codes of a prompt's products."""
    for node in graph.node:
        if node.op_type == "MatMulIntegerToFloat":
            node.input[5] = "shifted"
            arrays["shifted"] = np.array(129, "uint8")


def node_sizes(node):
    sizes = {each.name: each.i for each in node.attribute}
    return sizes["N"], -(-sizes["K"] // sizes["block_size"])


def other_weight(arrays, graph):
    """Two products of one shape read each other's weights, with their scales."""
    nodes = [each for each in graph.node if each.op_type == "MatMulNBits"]
    left = nodes[0]
    right = next(each for each in nodes[1:] if node_sizes(each) == node_sizes(left))
    (left.input[1], left.input[2]), (right.input[1], right.input[2]) = right.input[1:3], left.input[1:3]


ONNX_FAULTS = [
    *(("weight_int8", fault) for fault in (one_code, one_scale, rows, other_weight)),
    *(("weight_int4", fault) for fault in (one_code, coarse_scale, scale_axis, rows, nibbles, lost_offset, no_offsets)),
    *(("weight_int4", fault) for fault in (zero_point, other_weight)),
    *(("int8", fault) for fault in (one_code, one_scale, rows)),
    ("fp16", half_rows),
]


def names(values):
    return values.__name__ if callable(values) else str(values)


@pytest.mark.parametrize(("mode", "fault"), ONNX_FAULTS, ids=names)
def test_a_fault_in_an_onnx_file_is_refused(behaviors, tmp_path, mode, fault):
    source = behaviors.bundle("float")
    files = quantized(source, tmp_path / "bundle", "onnx", mode)
    edit_onnx(tmp_path / "bundle", lambda arrays, graph: None)
    check_quantized_weights("onnx", source, tmp_path / "bundle", files)
    edit_onnx(tmp_path / "bundle", fault)
    with pytest.raises(WeightError, match=r"onnx: weight '.*' differs from the float weight.* at \[\d+") as caught:
        check_quantized_weights("onnx", source, tmp_path / "bundle", files)
    assert len(caught.value.index) == 2
    assert caught.value.weight.split("~")[0] in caught.value.args[0]


def test_a_shifted_zero_of_products_of_integers_is_refused(tmp_path):
    from test_quantize import STEPS, decoder

    for name in ("float", "int8"):
        (tmp_path / name).mkdir()
        decoder(tmp_path / name)
    quantize_files(tmp_path / "int8", STEPS, Int8())
    found = check_quantized_weights("onnx", tmp_path / "float", tmp_path / "int8", STEPS)
    assert (found["rounded"], found["unaccounted"]) == (1, [])
    edit_onnx(tmp_path / "int8", shifted_zero)
    with pytest.raises(WeightError, match="'w' differs .* steps of its scale"):
        check_quantized_weights("onnx", tmp_path / "float", tmp_path / "int8", STEPS)


@pytest.mark.parametrize("mode", [*MODES, "int8_static"])
def test_files_without_contrib_operators_are_read_too(tmp_path, mode):
    from test_quantize import IDS
    from test_quantize import write as write_model

    (tmp_path / "float").mkdir()
    write_model(tmp_path / "float")
    shutil.copytree(tmp_path / "float", tmp_path / "small")
    quantization = MODES.get(mode) or Int8Static([{"ids": IDS}])
    ranges = {"x": (-3.0, 3.0), "y": (-4.0, 4.0), "z": (-5.0, 5.0)} if mode == "int8_static" else None
    quantize_files(tmp_path / "small", FILES, quantization, contrib_ops=False, ranges=ranges)
    found = check_quantized_weights("onnx", tmp_path / "float", tmp_path / "small", FILES)
    counts = {"equal": 1, "rounded": 4, "computed": [], "unaccounted": [], "largest_float": 96}
    assert {name: found[name] for name in counts} == counts
    assert 0.998 < found["share"] < 1


def edit_tflite(folder, change):
    """Changes the buffers and the tensors of a TFLite file."""
    (path,) = folder.glob("*.tflite")
    model = read(path.read_bytes())
    change(model)
    path.write_bytes(write(model))


def weight_of(model, *kinds, least=2048):
    """The first matrix of some types: its buffer, and all tensors of that buffer."""
    types = [getattr(schema().TensorType, kind) for kind in kinds]
    tensors = [each for graph in graphs(model) for each in graph.tensors]
    found = next(
        each
        for each in tensors
        if each.type in types and size_of(model.buffers[each.buffer]) and len(each.shape) == 2
        if np.prod(each.shape) >= least
    )
    return model.buffers[found.buffer], [each for each in tensors if each.buffer == found.buffer]


def changed(buffer, change):
    data = np.array(buffer.data)
    buffer.data = change(data)


def tflite_code(model):
    buffer, _ = weight_of(model, "INT8", "INT4")

    def change(data):
        data[len(data) // 2] ^= 2
        return data

    changed(buffer, change)


def tflite_scale(model):
    _, tensors = weight_of(model, "INT8")
    scale = np.array(tensors[0].quantization.scale)
    scale[5] *= np.float32(1.01)
    for each in tensors:
        each.quantization.scale = scale


def tflite_axis(model):
    _, tensors = weight_of(model, "INT8")
    for each in tensors:
        each.quantization.scale = each.quantization.scale[::-1]


def tflite_zero(model):
    _, tensors = weight_of(model, "INT8")
    for each in tensors:
        each.quantization.zeroPoint = each.quantization.zeroPoint + 1


def tflite_rows(model):
    buffer, tensors = weight_of(model, "INT8", "INT4", "FLOAT16")

    def change(data):
        lines = data.reshape(tensors[0].shape[0], -1)
        lines[[2, 6]] = lines[[6, 2]]
        return lines.reshape(-1)

    changed(buffer, change)


def tflite_nibbles(model):
    buffer, _ = weight_of(model, "INT4")
    changed(buffer, lambda data: data << 4 | data >> 4)


def tflite_offset(model):
    for graph in graphs(model):
        for tensor in graph.tensors:
            if tensor.name.endswith(b"/offsets"):
                halves = np.array(model.buffers[tensor.buffer].data).view("float16")
                halves[np.abs(halves).argmax()] = 0
                model.buffers[tensor.buffer].data = halves.view("uint8")
                return


TFLITE_FAULTS = [
    *(("int8", fault) for fault in (tflite_code, tflite_scale, tflite_axis, tflite_zero, tflite_rows)),
    *(("weight_int4", fault) for fault in (tflite_code, tflite_rows, tflite_nibbles, tflite_offset)),
    ("fp16", tflite_rows),
]


@pytest.mark.parametrize(("mode", "fault"), TFLITE_FAULTS, ids=names)
def test_a_fault_in_a_tflite_file_is_refused(behaviors, tmp_path, mode, fault):
    source = behaviors.bundle("float")
    files = quantized(source, tmp_path / "bundle", "tflite", mode)
    edit_tflite(tmp_path / "bundle", fault)
    with pytest.raises(WeightError, match=r"tflite: weight '.*' differs from the float weight.* at \[\d+, \d+\]"):
        check_quantized_weights("tflite", source, tmp_path / "bundle", files)


class TestComparison:
    """Single weights, by hand."""

    STEP = np.float32(0.5)

    @pytest.mark.parametrize(("number", "is_fault"), [(0.24, False), (0.26, True), (-0.26, True), (np.nan, True)])
    def test_half_a_step_is_rounding(self, number, is_fault):
        found = worst_fault(np.float32([number, 1.0]), Dequantized(np.float32([0.0, 1.0]), self.STEP))
        assert (found is not None) == is_fault
        assert found is None or found[0] == (0,)

    def test_the_lowest_and_the_highest_code_may_clip_outwards_only(self):
        found = codes(np.uint8([0, 15, 8]), 15).shifted(np.float32(-8)).scaled(self.STEP)
        np.testing.assert_array_equal(found.values, [-4.0, 3.5, 0.0])
        assert worst_fault(np.float32([-5.0, 4.5, 0.0]), found) is None
        assert worst_fault(np.float32([-3.0, 3.5, 0.0]), found) == ((0,), 2.0)
        assert worst_fault(np.float32([-4.0, 2.5, 0.0]), found) == ((1,), 2.0)
        assert worst_fault(np.float32([-4.0, 3.5, 1.0]), found) == ((2,), 2.0)
        assert worst_fault(np.float32([-8.0, 3.5, 0.0]), found) is not None

    def test_halves_are_rounded_to_the_nearest(self):
        numbers = np.float32([1.0, 1 / 3, 65504.0])
        half = numbers.astype("float16").astype("float32")
        assert worst_fault(numbers, Dequantized(half, is_half=True)) is None
        up = np.nextafter(np.float16(1 / 3), np.float16(1)).astype("float32")
        assert worst_fault(numbers, Dequantized(np.float32([1.0, up, 65504.0]), is_half=True))[0] == (1,)

    def test_a_float_weight_is_equal_bit_for_bit(self):
        numbers = np.float32([[1.0, 2.0]])
        assert worst_fault(numbers, Dequantized(numbers)) is None
        assert worst_fault(numbers, Dequantized(np.nextafter(numbers, 0)))[0] == (0, 1)

    def test_what_is_not_found_is_named(self):
        pairs = [WeightPair("lost", np.ones((3, 4), "float32"), None), WeightPair("small", np.ones(2, "float32"), None)]
        assert compare("onnx", pairs)["unaccounted"] == ["lost"]
        assert get_format("saved_model").weight_pairs(pathlib.Path(), pathlib.Path(), {}) is None


@pytest.mark.exhaustive
def test_a_bundle_has_the_record_of_its_weights(behaviors):
    for mode in ("int8", "weight_int4"):
        artifacts = read_manifest(pathlib.Path(behaviors.bundle(mode))).artifacts
        for name in ("onnx", "tflite"):
            assert artifacts[name].weights.rounded >= 13
            assert artifacts[name].weights.unaccounted == ()
