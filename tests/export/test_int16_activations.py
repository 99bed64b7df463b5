"""Activations of 16 bits in TFLite: what kernels of LiteRT compute of them, operator by operator, and what stays float."""

import numpy as np
import pytest
import tensorflow as tf
from tflite_files import float_operators

from keras_transformer.export import FullInt8
from keras_transformer.export.tflite.graph import graphs
from keras_transformer.export.tflite.quantization import int16_activations
from keras_transformer.export.tflite.quantization.activation_ranges import tensor_ranges
from keras_transformer.export.tflite.quantization.full_integers import in_integers
from keras_transformer.export.tflite.quantization.scales import check_scales
from keras_transformer.export.tflite.tree import read, write

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(4, 6, 6, 4)).astype("float32")


def constant(*shape):
    return tf.constant(RANDOM.normal(size=shape).astype("float32"))


KERNEL, CHANNELS = constant(3, 3, 4, 4), constant(4)

# Weights have 8 bits.
PRODUCTS = {
    "convolution": lambda x: tf.nn.relu(tf.nn.conv2d(x, KERNEL, 1, "SAME") + CHANNELS),
    "depthwise": lambda x: tf.nn.depthwise_conv2d(x, KERNEL[..., :1], [1] * 4, "SAME") + CHANNELS,
    "transposed": lambda x: tf.nn.conv2d_transpose(x, KERNEL, (4, 12, 12, 4), 2) + CHANNELS,
    "product": lambda x: tf.matmul(tf.reshape(x, (-1, 4)), KERNEL[0, 0]) + CHANNELS,
}
ARITHMETIC = {
    "factor": lambda x: x * 0.25,
    "channels": lambda x: CHANNELS - x * CHANNELS,
    "quotient": lambda x: x / (x * x + 1),
    "root": lambda x: tf.math.rsqrt(x * x + 1) + tf.sqrt(tf.abs(x) + 1),
    "powers of two": lambda x: tf.clip_by_value(x, 0.0, 2.0) - 1.0,
    "ends": lambda x: tf.clip_by_value(x, -0.7, 0.9),
    "two activations": lambda x: tf.matmul(x, tf.transpose(x, (0, 1, 3, 2))),
    "softmax": lambda x: tf.nn.softmax(tf.nn.gelu(x)),
    "sigmoid": lambda x: tf.nn.max_pool2d(tf.reshape(x * tf.sigmoid(x), (4, 6, 6, 4)), 2, 2, "SAME"),
    "sigmoid in other shapes": lambda x: tf.concat([tf.reshape(tf.sigmoid(x), (4, -1)), tf.reshape(x, (4, -1))], -1),
    "mean": lambda x: tf.reduce_mean(tf.nn.avg_pool2d(x, 2, 2, "SAME"), (1, 2)),
}
FLOATS = {
    "variance": (lambda x: tf.reduce_mean(tf.math.squared_difference(x, CHANNELS), -1), ["SQUARED_DIFFERENCE"]),
    "clip": (lambda x: tf.clip_by_value(tf.transpose(x, (0, 2, 1, 3)), -1.0, 1.0), ["RELU_N1_TO_1"]),
    "hard swish": (lambda x: x * tf.nn.relu6(x + 3) / 6, ["HARD_SWISH"]),
    "logarithms": (lambda x: tf.nn.log_softmax(x), ["LOG_SOFTMAX"]),
    "unit": (lambda x: tf.math.l2_normalize(x, -1), ["L2_NORMALIZATION"]),
    "depth": (lambda x: tf.nn.depth_to_space(tf.nn.space_to_depth(x, 2), 2), ["SPACE_TO_DEPTH", "DEPTH_TO_SPACE"]),
    "scatter": (lambda x: tf.scatter_nd([[0], [1], [2], [3]], x, (5, 6, 6, 4)), ["SCATTER_ND"]),
    "choice": (lambda x: tf.where(x > CHANNELS, x, x * x), ["GREATER"]),
    "largest": (lambda x: tf.cast(tf.argmax(x, -1), "float32"), ["ARG_MAX"]),
    "constant product": (lambda x: tf.matmul(x, KERNEL[0, 0][None, None] * tf.ones((4, 6, 1, 1))), ["BATCH_MATMUL"]),
}


def files(function, folder):
    """A float file of a function of `X`, the same with activations of 16 bits, and the ranges."""
    module = tf.Module()
    call = tf.function(lambda x: {"y": function(x)}, input_signature=[tf.TensorSpec(X.shape, name="x")])
    tf.saved_model.save(module, str(folder), call.get_concrete_function())
    content = tf.lite.TFLiteConverter.from_saved_model(str(folder)).convert()
    ranges = tensor_ranges(content, [{"x": X}], bits=16)
    model = read(in_integers(content, ranges, FullInt8([X], activation_bits=16)))
    int16_activations.mend(model)
    return content, write(model), ranges


def outputs(content):
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    kernels = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = Interpreter(model_content=content, experimental_op_resolver_type=kernels)
    return interpreter.get_signature_runner()(x=X)["y"]


def error(content, other):
    expected = outputs(content)
    return np.sqrt(np.mean((outputs(other) - expected) ** 2) / np.mean(expected**2))


@pytest.mark.parametrize("case", PRODUCTS)
def test_products_differ_by_the_rounding_of_their_weights(tmp_path, case):
    content, wide, ranges = files(PRODUCTS[case], tmp_path)
    check_scales(read(wide), ranges, 16)
    assert float_operators(wide) == []
    assert 1e-4 < error(content, wide) < 8e-3


@pytest.mark.parametrize("case", ARITHMETIC)
def test_other_operators_differ_by_a_rounding_to_16_bits(tmp_path, case):
    content, wide, ranges = files(ARITHMETIC[case], tmp_path)
    check_scales(read(wide), ranges, 16)
    assert float_operators(wide) == []
    assert 0 < error(content, wide) < 6e-4


@pytest.mark.parametrize("case", FLOATS)
def test_operators_without_a_kernel_stay_float(tmp_path, case):
    function, kinds = FLOATS[case]
    content, wide, _ = files(function, tmp_path)
    assert float_operators(wide) == kinds
    assert error(content, wide) < 4e-4


@pytest.mark.parametrize("kind", sorted(int16_activations.WITHOUT_KERNEL - {"ARG_MIN"} | {"BATCH_MATMUL"}))
def test_each_of_these_is_a_case(kind):
    comparisons = {"EQUAL", "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL"}
    assert kind in comparisons | {each for _, kinds in FLOATS.values() for each in kinds}


def test_biases_have_64_bits_and_no_tensor_a_zero_point(tmp_path):
    _, wide, _ = files(PRODUCTS["convolution"], tmp_path)
    (graph,) = graphs(read(wide))
    (convolution,) = (each for each in graph.subgraph.operators if graph.kind(each) == "CONV_2D")
    assert [graph.type(int(each)) for each in convolution.inputs] == ["INT16", "INT8", "INT64"]
    zeros = [np.asarray(each.quantization.zeroPoint) for each in graph.tensors if each.quantization.scale is not None]
    assert not np.concatenate(zeros).any()
