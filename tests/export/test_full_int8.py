"""Integers throughout: what files compute, which of their operators are of integers, and planted faults."""

import re

import keras
import numpy as np
import onnx
import onnx_ir as ir
import pytest

from keras_transformer.export import FullInt8, QuantizationError, WeightError
from keras_transformer.export.data.export_spec import ExportSpec
from keras_transformer.export.onnx.graph import name_of
from keras_transformer.export.onnx.options import OnnxOptions
from keras_transformer.export.onnx.quantization import full_integers
from keras_transformer.export.onnx.quantization import scales as onnx_scales
from keras_transformer.export.onnx.weights.files import read as read_onnx
from keras_transformer.export.onnx.weights.lazy_tensors import tensor_of
from keras_transformer.export.onnx.weights.weight_pairs import weight_pairs as onnx_pairs
from keras_transformer.export.tflite.graph import graphs
from keras_transformer.export.tflite.quantization import scales as tflite_scales
from keras_transformer.export.tflite.tree import read_file
from keras_transformer.export.tflite.weights.weight import Weight, name_by_channels
from keras_transformer.export.tflite.weights.weight_pairs import tree_pairs
from keras_transformer.export.verification.quantized.weights import compare

CASES = ("convolutions", "attention", "gated", "bounded", "embedded", "recurrent")
ERRORS = dict(zip(CASES, (0.03, 0.06, 0.03, 0.03, 0.06, 0.1), strict=True))
FORMATS = ("tflite", "onnx")
# Of the worker in tests that are exhaustive.
EXHAUSTIVE = ("gated", "embedded")
CELLS = ("lstm_cell", "gru_cell", "simple_rnn_cell")


def often(parameters):
    """The parameters of a test, of which those of some cases are exhaustive."""
    rows = [each if isinstance(each, tuple) else (each,) for each in parameters]
    return [pytest.param(*row, marks=pytest.mark.exhaustive if row[0] in EXHAUSTIVE else ()) for row in rows]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(("case", "error"), often(ERRORS.items()))
def test_files_compute_nearly_what_keras_computes(full_int8, case, format, error):
    found = full_int8[f"{case}_{format}"]
    assert 0 < found["error"] < error
    assert found["agreement"] >= 0.95


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("case", often(CASES))
def test_activations_of_16_bits_leave_the_rounding_of_the_weights(full_int8, case, format):
    found, narrow = full_int8[f"{case}_{format}_16"], full_int8[f"{case}_{format}"]
    assert 0 < found["error"] < min(0.02, narrow["error"])
    assert found["agreement"] >= 0.98


@pytest.mark.parametrize(
    ("case", "format", "products", "floats"),
    often(
        [
            ("convolutions", "tflite", 1.0, []),
            ("convolutions", "onnx", 1.0, []),
            ("bounded", "tflite", 1.0, []),
            ("bounded", "onnx", 1.0, ["smooth"]),
            ("embedded", "tflite", 1.0, []),
            ("embedded", "onnx", 1.0, []),
            ("gated", "tflite", 1.0, []),
            ("gated", "onnx", 1.0, []),
            ("attention", "tflite", 1.0, ["scores", "softmax"]),
            ("attention", "onnx", 0.9, ["layer_normalization", "node_Gelu"]),
            ("recurrent", "tflite", 1.0, ["forward_memory", "backward_memory", "gates", "simple", *CELLS]),
            ("recurrent", "onnx", 0.002, ["backward_memory", "forward_memory", *CELLS[1:]]),
        ]
    ),
)
def test_the_report_says_what_became_integers(full_int8, case, format, products, floats):
    found = full_int8[f"{case}_{format}"]["integers"]
    assert products <= found["products"] <= (0.03 if (case, format) == ("recurrent", "onnx") else 1)
    assert [re.sub(r"_\d+$", "", layer) for layer in found["float_layers"]] == floats
    assert found["weights"] > 0.9


@pytest.mark.parametrize(
    ("case", "types"), [("convolutions_tflite", ["INT8", "UINT8"]), ("convolutions_tflite_16", ["INT16", "INT16"])]
)
def test_ends_have_the_types_that_were_asked_for(full_int8, case, types):
    (graph,) = graphs(read_file(full_int8.bundle(case) / "full_int8/model.tflite"))
    ends = [graph.type(int(index)) for index in (*graph.subgraph.inputs, *graph.subgraph.outputs)]
    assert ends == types
    used = {int(index) for each in graph.subgraph.operators for index in (*each.inputs, *each.outputs) if index >= 0}
    assert "FLOAT32" not in {graph.type(index) for index in used}


def test_onnx_runtime_computes_with_floats_that_are_rounded_to_16_bits(full_int8):
    found = full_int8["convolutions_onnx_16"]["integers"]
    assert found["products"] == 0
    graph = read_onnx(full_int8.bundle("convolutions_onnx_16") / "full_int8/model.onnx").graph
    zeros = {each.inputs[2].dtype.name for each in graph if each.op_type == "QuantizeLinear"}
    assert zeros == {"UINT16"}


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", ["gated_tflite", "gated_tflite_16"])
def test_hard_swishes_are_sums_and_products_that_a_cpu_computes_at_once(full_int8, case):
    (graph,) = graphs(read_file(full_int8.bundle(case) / "full_int8/model.tflite"))
    kinds = [graph.kind(each) for each in graph.subgraph.operators]
    (float_graph,) = graphs(read_file(full_int8.bundle(case) / "float32/model.tflite"))
    assert [float_graph.kind(each) for each in float_graph.subgraph.operators].count("HARD_SWISH") == 2
    assert "HARD_SWISH" not in kinds
    # Each a sum, its product by a sixth, and the product of the two; the gate is a convolution and such a product.
    assert (kinds.count("ADD"), kinds.count("MUL")) == (2, 6)


def test_a_norm_has_one_difference_and_its_square(full_int8):
    (graph,) = graphs(read_file(full_int8.bundle("attention_tflite") / "full_int8/model.tflite"))
    graph.find_uses()
    operators = {graph.kind(each): each for each in graph.subgraph.operators}
    assert "SQUARED_DIFFERENCE" not in operators
    readers = [graph.kind(each) for each in graph.readers[int(operators["SUB"].outputs[0])]]
    assert [*map(graph.kind, graph.subgraph.operators)].count("SUB") == 1
    assert sorted(readers) == ["MUL", "MUL", "MUL"]  # By itself, which reads it twice, and by the inverse deviation.


def test_bounds_beyond_the_range_are_left_out_and_functions_are_of_integers(full_int8):
    (graph,) = graphs(read_file(full_int8.bundle("bounded_tflite") / "full_int8/model.tflite"))
    kinds = {graph.kind(each): graph.type(int(each.inputs[0])) for each in graph.subgraph.operators}
    assert not {"MINIMUM", "RELU6"} & kinds.keys()
    assert kinds["ELU"] == "INT8"
    (float_graph,) = graphs(read_file(full_int8.bundle("bounded_tflite") / "float32/model.tflite"))
    assert "MINIMUM" in [float_graph.kind(each) for each in float_graph.subgraph.operators]


@pytest.mark.exhaustive
def test_products_by_a_sixth_are_scales(full_int8):
    graph = read_onnx(full_int8.bundle("gated_onnx") / "full_int8/model.onnx").graph
    before = read_onnx(full_int8.bundle("gated_onnx") / "float32/model.onnx").graph
    kinds = [[each.op_type for each in nodes] for nodes in (before, graph)]
    assert [(each.count("Mul"), each.count("GlobalAveragePool")) for each in kinds] == [(6, 2), (3, 2)]
    assert "Transpose" in kinds[0]
    assert kinds[1].count("Transpose") == 1  # Of the images.


def test_transposed_convolutions_that_do_not_overlap_are_of_integers(full_int8):
    graph = read_onnx(full_int8.bundle("convolutions_onnx") / "full_int8/model.onnx").graph
    kinds = [each.op_type for each in graph]
    assert (kinds.count("DepthToSpace"), kinds.count("ConvTranspose")) == (1, 0)
    (moved,) = (each for each in graph if each.op_type == "DepthToSpace")
    (kernel,) = (each for each in graph.initializers.values() if list(each.shape) == [32, 20, 1, 1])
    assert kernel.dtype.name == "INT8"
    assert moved.attributes.get_int("blocksize") == 2


@pytest.mark.exhaustive
def test_what_stands_between_floats_and_integers_takes_little_room(full_int8):
    graph = read_onnx(full_int8.bundle("gated_onnx") / "full_int8/model.onnx").graph
    biases = [each for each in graph if each.inputs[0].is_initializer() and each.inputs[0].dtype.name == "INT32"]
    assert [len(each.inputs) for each in biases] == [2] * len(biases)
    assert len(biases) >= 4
    between = [each for each in graph if each.op_type == "QuantizeLinear"]
    assert max(len(value.name) for each in between for value in (*each.inputs[1:], *each.outputs)) < 8


def test_numbers_beside_a_mask_stay_float(full_int8):
    (graph,) = graphs(read_file(full_int8.bundle("attention_tflite") / "full_int8/model.tflite"))
    kinds = [(graph.kind(each), graph.type(int(each.inputs[0]))) for each in graph.subgraph.operators]
    assert [kind for name, kind in kinds if name == "SOFTMAX"] == [
        "FLOAT32",
        "INT8",
    ]  # Under the mask, and the outputs.
    assert {kind for name, kind in kinds if name in ("FULLY_CONNECTED", "BATCH_MATMUL")} == {"INT8"}


@pytest.mark.parametrize("format", FORMATS)
def test_a_loss_of_the_task_names_the_weight_that_costs_most(full_int8, format):
    refused = full_int8[f"costly_{format}"]["refused"]
    assert "the score falls from 1 to 0, by more than 0.1" in refused
    assert "With one weight in keep_float the score is 1 for 'fragile/kernel', 0 for 'exact/kernel'" in refused


def test_ranges_of_loops_are_those_of_all_steps(full_int8):
    of_steps = full_int8["recurrent_tflite"]["of_steps"]
    np.testing.assert_allclose(of_steps["found"], of_steps["expected"], rtol=1e-5)


@pytest.mark.parametrize(("case", "activations"), [("recurrent_tflite", "FLOAT32"), ("recurrent_tflite_16", "INT16")])
def test_products_of_loops_have_weights_of_8_bits(full_int8, case, activations):
    every = graphs(read_file(full_int8.bundle(case) / "full_int8/model.tflite"))
    products = [
        [graph.type(int(index)) for index in each.inputs[:2]]
        for graph in every[1:]
        for each in graph.subgraph.operators
        if graph.kind(each) == "FULLY_CONNECTED"
    ]
    assert products == [[activations, "INT8"]] * 8


class TestFaultsInTFLite:
    @pytest.fixture
    def files(self, full_int8):
        folder = full_int8.bundle("convolutions_tflite")
        ranges = {(graph, index): tuple(ends) for graph, index, *ends in full_int8["convolutions_tflite"]["ranges"]}
        return *(read_file(folder / name / "model.tflite") for name in ("float32", "full_int8")), ranges

    def test_a_clean_file_passes(self, files):
        before, after, ranges = files
        tflite_scales.check_scales(after, ranges)
        found = compare("tflite", tree_pairs(before, after))
        assert (found["equal"], found["unaccounted"], found["share"]) == (0, [], 1.0)

    def test_two_channels_of_a_kernel_are_swapped(self, files):
        before, after, _ = files
        buffer = after.buffers[tensor_of_kind(after, "CONV_2D", 1).buffer]
        codes = np.array(buffer.data).reshape(8, -1)
        buffer.data = codes[[1, 0, *range(2, 8)]].reshape(-1)
        with pytest.raises(WeightError, match="steps of its scale"):
            compare("tflite", tree_pairs(before, after))

    def test_the_scale_of_a_channel_is_wrong(self, files):
        before, after, _ = files
        parameters = tensor_of_kind(after, "DEPTHWISE_CONV_2D", 1).quantization
        parameters.scale = np.array(parameters.scale) * np.where(np.arange(len(parameters.scale)) == 3, 1.1, 1)
        with pytest.raises(WeightError, match="steps of its scale"):
            compare("tflite", tree_pairs(before, after))

    @pytest.mark.parametrize(("scale", "zero"), [(1.1, 0), (1.0, 3)])
    def test_an_activation_has_other_steps(self, files, scale, zero):
        _, after, ranges = files
        parameters = tensor_of_kind(after, "CONV_2D", 0).quantization
        parameters.scale, parameters.zeroPoint = parameters.scale * scale, parameters.zeroPoint + zero
        with pytest.raises(WeightError, match="those of no measured range"):
            tflite_scales.check_scales(after, ranges)


def tensor_of_kind(model, kind, position):
    """The tensor that the first operator of a kind reads."""
    graph = graphs(model)[0]
    operator = next(each for each in graph.subgraph.operators if graph.kind(each) == kind)
    return graph.tensors[int(operator.inputs[position])]


class TestFaultsInOnnx:
    @pytest.fixture
    def folder(self, full_int8):
        return full_int8.bundle("convolutions_onnx")

    @pytest.fixture
    def ranges(self, full_int8):
        return {name: tuple(ends) for name, *ends in full_int8["convolutions_onnx"]["ranges"]}

    def compared(self, folder, after):
        return compare("onnx", onnx_pairs(folder / "float32", after, {"serve": "model.onnx"}))

    def planted(self, folder, out, change, kind):
        """A copy of the quantized file with a change of the first initializer of a type."""
        model = onnx.load(folder / "full_int8/model.onnx")
        tensor = next(
            each
            for each in model.graph.initializer
            if each.data_type == kind and len(each.dims) == 4 and each.dims[0] == 8
        )
        array = change(onnx.numpy_helper.to_array(tensor))
        tensor.CopyFrom(onnx.numpy_helper.from_array(np.ascontiguousarray(array), tensor.name))
        onnx.save(model, out / "model.onnx")
        return out

    def test_a_clean_file_passes(self, folder, ranges):
        onnx_scales.check_scales(read_onnx(folder / "full_int8/model.onnx").graph, ranges)
        found = self.compared(folder, folder / "full_int8")
        assert found["unaccounted"] == []
        assert 0.5 < found["share"] < 1

    def test_two_channels_of_a_kernel_are_swapped(self, folder, tmp_path):
        swapped = self.planted(
            folder, tmp_path, lambda array: array[[1, 0, *range(2, len(array))]], onnx.TensorProto.INT8
        )
        with pytest.raises(WeightError, match="steps of its scale"):
            self.compared(folder, swapped)

    @pytest.mark.parametrize(("position", "change"), [(1, np.float32(1.1)), (2, np.uint8(3))])
    @pytest.mark.parametrize("kind", ["QuantizeLinear", "DequantizeLinear"])
    def test_an_activation_has_other_steps(self, folder, ranges, kind, position, change):
        graph = read_onnx(folder / "full_int8/model.onnx").graph
        nodes = [each for each in graph if each.op_type == kind and not each.inputs[0].is_initializer()]
        node, old = nodes[1], nodes[1].inputs[position]
        array = np.asarray(old.const_value.numpy())
        new = array * change if position == 1 else array + change
        value = ir.Value(name="planted", const_value=tensor_of(np.asarray(new, array.dtype), "planted"))
        graph.initializers.add(value)
        node.replace_input_with(position, value)
        with pytest.raises(WeightError, match="those of no measured range"):
            onnx_scales.check_scales(graph, ranges)
        assert name_of(node.inputs[position]) == "planted"


def test_kernels_with_factors_of_channels_are_named_by_their_variables():
    random = np.random.default_rng(0)
    shapes = {"regular": (3, 3, 2, 4), "other": (3, 3, 2, 4), "sequence": (3, 2, 4), "depthwise": (3, 3, 4, 1)}
    kernels = {name: random.normal(size=shape).astype("float32") for name, shape in shapes.items()}
    factors = np.array([0.5, -2.0, 1e-3, 7.0], "float32")
    stored = [
        (kernels["other"] * factors).transpose(3, 0, 1, 2),
        (kernels["sequence"] * factors).transpose(2, 0, 1)[:, None],
        kernels["depthwise"].reshape(1, 3, 3, 4) * factors,
        random.normal(size=(4, 3, 3, 2)).astype("float32"),
    ]
    weights = [Weight(number, each, each.shape, "tensor", []) for number, each in enumerate(stored)]
    variables = [keras.Variable(kernel, name=name) for name, kernel in kernels.items()]
    name_by_channels(weights, variables)
    assert [each.name for each in weights] == ["other", "sequence", "depthwise", "tensor"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "full_int8 needs calibration"),
        ({"calibration": [1.0], "input_type": "int16"}, "input_type must be one of float32, int8, uint8"),
        ({"calibration": [1.0], "ranges": "widest"}, "ranges must be one of"),
        ({"calibration": [1.0], "activation_bits": 4}, "activation_bits must be 8 or 16. Received: 4"),
        (
            {"calibration": [1.0], "activation_bits": 16, "output_type": "int8"},
            "output_type must be one of float32, int16. Received: 'int8'",
        ),
    ],
)
def test_options_that_mean_nothing_are_refused(options, message):
    with pytest.raises(QuantizationError, match=message):
        FullInt8(**options)


@pytest.mark.parametrize(
    ("files", "options", "message"),
    [
        ({"encode": "a.onnx", "decode": "b.onnx"}, {}, "calibrates one forward pass"),
        ({"serve": "a.onnx"}, {"output_type": "int8"}, "inputs and outputs of integers are TFLite's"),
        ({"serve": "a.onnx"}, {"activation_bits": 16}, "activations of 16 bits need opset 21, or contrib_ops"),
    ],
)
def test_what_onnx_files_cannot_be_is_refused_before_work(tmp_path, files, options, message):
    onnx_options = OnnxOptions(opset=20, contrib_ops=False)
    spec = ExportSpec({}, quantization=FullInt8([1.0], **options), onnx=onnx_options)
    with pytest.raises(QuantizationError, match=message):
        full_integers.quantize(spec, tmp_path, files)
