"""Products by a number in quantized ONNX graphs, which become scales."""

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import parser

from keras_transformer.export.errors import WeightError
from keras_transformer.export.onnx.quantization.factors import drop_factors, factors_of
from keras_transformer.export.onnx.quantization.full_integers import in_integers, tensor_ranges
from keras_transformer.export.onnx.quantization.scales import check_scales
from keras_transformer.export.onnx.weights.lazy_tensors import tensor_of

X = {"x": np.random.default_rng(0).normal(size=(2, 3, 4, 4)).astype("float32") * 3}
HARD_SWISH = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[2, 3, 4, 4] x) => (float[2, 3, 4, 4] y)
<float three = {3.0}, float least = {0.0}, float most = {6.0}, float factor = {FACTOR}>
{
  sum = Add(x, three)
  gate = Clip(sum, least, most)
  scaled = Mul(gate, factor)
  y = Mul(x, scaled)
}
"""


@pytest.fixture(params=[0.16666667, 2.0])
def quantized(request, tmp_path):
    """`(quantized graph with its products, ranges, factors)`."""
    path = tmp_path / "model.onnx"
    model = parser.parse_model(HARD_SWISH.replace("FACTOR", str(request.param)))
    for number, node in enumerate(model.graph.node):
        node.name = f"node_{number}"
    onnx.save(model, path)
    ranges = tensor_ranges(path, [X], "minmax")
    factors = factors_of(ir.load(path).graph)
    assert factors == {"scaled": pytest.approx(request.param)}
    return ir.from_proto(in_integers(path, ranges)), ranges, factors


def computed(model):
    session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, X)[0]


def test_codes_are_the_same_without_the_product(quantized):
    model, ranges, factors = quantized
    expected = computed(model)
    assert drop_factors(model.graph, factors) == 1
    assert [node.op_type for node in model.graph].count("Mul") == 1
    np.testing.assert_array_equal(computed(model), expected)
    check_scales(model.graph, ranges, 8, factors)


def test_a_factor_that_the_float_file_has_not_is_refused(quantized):
    model, ranges, factors = quantized
    drop_factors(model.graph, factors)
    for wrong in ({}, {"scaled": factors["scaled"] * 1.01}, {"gate": factors["scaled"]}):
        with pytest.raises(WeightError, match="those of no measured range"):
            check_scales(model.graph, ranges, 8, wrong)


def test_a_product_with_another_range_stays(quantized):
    model, _, factors = quantized
    (writer,) = (node for node in model.graph if node.outputs[0].name == "scaled_QuantizeLinear_Output")
    scale = ir.Value(name="other", const_value=tensor_of(np.array(0.3, "float32"), "other"))
    model.graph.initializers.add(scale)
    writer.replace_input_with(1, scale)
    assert drop_factors(model.graph, factors) == 0


@pytest.mark.parametrize("number", ["-0.5", "0.0"])
def test_other_numbers_are_no_factors(number):
    graph = ir.from_proto(parser.parse_model(HARD_SWISH.replace("FACTOR", number))).graph
    assert factors_of(graph) == {}
