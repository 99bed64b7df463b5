"""ONNX files of sequences without elements, and of batches without rows: they have the shape that Keras computes."""

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import parser
from onnx_graphs import all_nodes

from keras_transformer.export.onnx.options import OnnxOptions
from keras_transformer.export.onnx.passes.optimize import optimize

# Heads of a sequence, as a converter writes them: the batch is what is left.
HEADS = """
<ir_version: 10, opset_import: ["" : 18]>
g (float[batch, length, 6] x, float[6, 6] w) => (float[a, b, c, d] y)
<int64[1] batch = {-1}, int64[1] one = {1}, int64[1] two = {2}, int64[1] zero = {0}, int64[2] heads = {2, 3},
 int64[2] flat = {-1, 6}>
{
  shape = Shape(x)
  length = Slice(shape, one, two, zero)
  matrix = Reshape(x, flat)
  product = MatMul(matrix, w)
  target = Concat<axis = 0>(batch, length, heads)
  y = Reshape(product, target)
}
"""
# Positions that a model leaves out, of which no input has the size.
SHORTENED = """
<ir_version: 10, opset_import: ["" : 18]>
g (float[batch, length, 6] x) => (float[a, b, c, d] y)
<int64[1] one = {1}, int64[1] two = {2}, int64[1] zero = {0}, int64[2] heads = {2, 3}, int64[1] most = {1000}>
{
  rest = Slice(x, one, most, one)
  shape = Shape(rest)
  sizes = Slice(shape, zero, two, zero)
  target = Concat<axis = 0>(sizes, heads)
  y = Reshape(rest, target)
}
"""


def optimized(text):
    model = ir.from_proto(parser.parse_model(text))
    optimize(model, OnnxOptions())
    proto = ir.to_proto(model)
    onnx.checker.check_model(proto, full_check=True)
    return proto


def computed(proto, **arrays):
    (result,) = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, arrays)
    return result


@pytest.mark.parametrize("shape", [(2, 0), (0, 5), (0, 0), (2, 5)])
def test_a_size_of_0_is_none_of_another_axis(shape):
    x = np.arange(np.prod(shape) * 6, dtype="float32").reshape(*shape, 6)
    w = np.eye(6, dtype="float32")
    proto = optimized(HEADS)
    np.testing.assert_array_equal(computed(proto, x=x, w=w), x.reshape(*shape, 2, 3))


@pytest.mark.parametrize("length", [1, 4])
def test_a_size_that_no_input_has_may_be_0(length):
    x = np.arange(2 * length * 6, dtype="float32").reshape(2, length, 6)
    found = computed(optimized(SHORTENED), x=x)
    np.testing.assert_array_equal(found, x[:, 1:].reshape(2, length - 1, 2, 3))


def test_targets_that_are_constants_stay():
    text = HEADS.replace("batch, length, 6", "batch, 5, 6")
    reshapes = [node for node in all_nodes(optimized(text).graph) if node.op_type == "Reshape"]
    assert reshapes
    assert not any(each.name == "allowzero" for node in reshapes for each in node.attribute)
