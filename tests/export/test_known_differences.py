"""What files are known to compute otherwise than Keras: which models meet such numbers, and what their reports say."""

import html
import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

from keras_transformer.export import export, load

pytestmark = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the exporter's own process")
if keras.backend.backend() == "tensorflow":
    from test_operations import traced

    from keras_transformer.export.operations.differences import known_differences

ROWS = np.ones((2, 3), "float32")


def lines_of(function, *arrays, format="tflite"):
    return list(known_differences(traced(function, arrays), format, lambda op, node: "my_layer").values())


def test_an_operation_that_nan_reaches_is_named():
    def function(x, y):
        return tf.where(x > 0, tf.maximum(x, tf.minimum(x, 1.0)), tf.exp(y))

    lines = lines_of(function, ROWS, ROWS)
    assert lines == [
        "differs from Keras for NaN in 'input_0': Maximum of layer 'my_layer'",
        "differs from Keras for NaN in 'input_1': Exp of layer 'my_layer'",
    ]
    assert lines_of(function, ROWS, ROWS, format="onnx") == []


TOLD = {
    "a comparison of it": (lambda x: tf.exp(x) < 0.5, "tflite", "Exp"),
    "its place among others": (lambda x: tf.argsort(x), "onnx", "TopKV2"),
    "a byte of it": (lambda x: tf.cast(tf.clip_by_value(x, 0.0, 255.0), tf.uint8), "tflite", "Cast"),
    "the mean of a part of a volume": (
        lambda x: tf.nn.avg_pool3d(x[None, None, ..., None], 2, 1, "SAME") > 0,
        "tflite",
        "AvgPool3D",
    ),
    "pixels around it": (lambda x: tf.image.resize(x[None, ..., None], [4, 4], "area") > 0, "onnx", "ResizeArea"),
}


@pytest.mark.parametrize("name", TOLD)
def test_what_is_no_float_tells_nan_from_numbers(name):
    function, format, op = TOLD[name]
    assert lines_of(function, ROWS, format=format) == [
        f"differs from Keras for NaN in 'input_0': {op} of layer 'my_layer'"
    ]


def test_depthwise_kernels_that_are_filled_up_spread_nan():
    """LiteRT has loops for kernels of 3, 4, 9 and 25 weights, and for larger ones."""

    def named(*kernel):
        weights = np.ones((*kernel, 2, 1), "float32")

        def function(x):
            return tf.nn.depthwise_conv2d(x, weights, [1, 1, 1, 1], "SAME") > 0

        return lines_of(function, np.ones((1, 8, 8, 2), "float32"))

    filled = "differs from Keras for NaN in 'input_0': DepthwiseConv2dNative of layer 'my_layer'"
    assert [named(*each) for each in ((1, 1), (2, 3), (1, 5), (3, 4))] == [[filled]] * 4
    assert [named(*each) for each in ((1, 3), (2, 2), (3, 3), (5, 5), (5, 6))] == [[]] * 5


SILENT = {
    "numbers that are integers": (lambda x: tf.where(x > 0, tf.exp(tf.cast(x, tf.float32)), 1.0), ROWS.astype("int32")),
    "NaN is replaced before": (lambda x: tf.exp(tf.where(tf.math.is_nan(x), 0.0, x)), ROWS),
    "NaN is replaced by its equality": (lambda x: tf.exp(tf.where(tf.logical_not(tf.equal(x, x)), 0.0, x)), ROWS),
    "the result is NaN in Keras too": (lambda x: tf.exp(x) + tf.maximum(x, 0.0), ROWS),
    "a boolean is NaN never": (lambda x: tf.where(x > 0, tf.exp(tf.cast(x > 0, tf.float32)), x), ROWS),
    "only the shape is read": (lambda x: tf.where(x > 0, tf.exp(tf.cast(tf.shape(x)[0], tf.float32)), x), ROWS),
}


@pytest.mark.parametrize("name", SILENT)
def test_nothing_is_said_where_nan_reaches_nothing(name):
    function, array = SILENT[name]
    assert lines_of(function, array) == []


def test_nan_is_followed_into_loops_and_branches():
    def function(x, y):
        _, last = tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, tf.where(x > 0, tf.exp(x), x)), (0, x))
        return tf.cond(tf.reduce_sum(y) > 0, lambda: last + 1.0, lambda: tf.maximum(tf.where(y > 0, y, 0.0), last))

    assert [line.split(": ")[1] for line in lines_of(function, ROWS, ROWS)] == [
        "Exp of layer 'my_layer', Maximum of layer 'my_layer'",
        "Maximum of layer 'my_layer'",
    ]


def test_several_operations_are_counted():
    def function(x):
        for _ in range(6):
            x = tf.where(x > 0, tf.exp(x), x)
        return x

    graph = traced(function, [ROWS])
    (line,) = known_differences(graph, "tflite", lambda op, node: node).values()
    assert line.endswith(" and 3 more")


ORDINARY = {
    "convolutions": lambda: keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            layers.Conv2D(4, 3),
            layers.BatchNormalization(),
            layers.ReLU(6.0),
            layers.MaxPooling2D(),
            layers.GlobalAveragePooling2D(),
            layers.Dense(2, activation="softmax"),
        ]
    ),
    "attention": lambda: keras.Sequential(
        [keras.Input((7,)), layers.Embedding(9, 8, mask_zero=True), layers.GRU(4), layers.Dense(2, activation="gelu")]
    ),
    "MobileNetV3": lambda: keras.applications.MobileNetV3Small((32, 32, 3), weights=None, classes=3),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ORDINARY)
def test_nothing_is_said_of_ordinary_models(name):
    model = ORDINARY[name]()
    array = np.zeros((2, *model.input_shape[1:]), "float32")
    for format in ("tflite", "onnx"):
        assert lines_of(lambda x: model(x, training=False), array, format=format) == []


def test_recurrent_operators_of_onnx_limit_nan(tmp_path):
    inputs = keras.Input((5, 3), name="measured")
    states = layers.Bidirectional(layers.LSTM(2, name="steps"))(inputs)
    model = keras.Model(inputs, ops.where(ops.isnan(states), 9.0, states))
    report = export(model, tmp_path / "model", ["onnx", "tflite"], progress=False)
    (text,) = report["onnx"].known_differences
    loops = "While of layer 'forward_steps', While of layer 'backward_steps'"
    assert text == f"differs from Keras for NaN in 'measured': {loops}"
    assert not any("steps" in each for each in report["tflite"].known_differences)


def test_the_report_and_the_manifest_say_it(tmp_path):
    inputs, usual = keras.Input((3,), name="measured"), keras.Input((3,), dtype="int32", name="usual")
    least = ops.cast(usual, "float32")
    model = keras.Model([inputs, usual], ops.maximum(ops.where(ops.isnan(inputs), -1.0, inputs), least))
    limited = keras.Model([inputs, usual], ops.maximum(ops.where(inputs > 2, 2.0, inputs), least))
    assert "for NaN" not in str(export(model, tmp_path / "told", ["tflite"], progress=False))

    report = export(limited, tmp_path / "limited", ["tflite", "onnx"], progress=False)

    (text,) = report["tflite"].known_differences
    assert text.startswith("differs from Keras for NaN in 'measured': Maximum of layer 'maximum")
    assert f"tflite {text}" in str(report)
    assert report["onnx"].known_differences == ()
    artifacts = json.loads((tmp_path / "limited" / "manifest.json").read_text())["artifacts"]
    assert artifacts["tflite"]["known_differences"] == [text]
    assert "known_differences" not in artifacts["onnx"]
    assert html.escape(text) in (tmp_path / "limited" / "report.html").read_text()
    assert "Known differences" not in (tmp_path / "told" / "report.html").read_text()
    arrays = {"measured": np.array([[np.nan, 0, 9]], "float32"), "usual": np.array([[1, 1, 1]], "int32")}
    for format, expected in (("onnx", [[np.nan, 1, 2]]), ("tflite", [[1, 1, 2]])):  # As the report says.
        (found,) = load(tmp_path / "limited", format)(arrays).values()
        np.testing.assert_array_equal(found, expected)
