"""Recurrent layers and layers of each step, of any batch and length, in the files of each format."""

import json
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest
from variants import exhaustive_but

pytestmark = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the exporter's own process")
WORKER = pathlib.Path(__file__).with_name("recurrent_worker.py")
CASES = (
    *("lstm", "lstm_twice", "lstm_of_long_rows", "gru_backwards", "simple_rnn", "bidirectional", "cells", "masked"),
    *(
        "gru_that_resets_before",
        "unrolled",
        "blocks_that_repeat",
        "hard_gates",
        "masked_sequence",
        "masked_both_ways",
        "states",
        "pictures",
        "each_step",
        "each_frame",
    ),
)
QUICK = ("lstm", "gru_backwards", "masked", "states")

# Masks are no lengths of rows, and activations with numbers of their own are left to a loop.
OPERATORS = {
    "lstm_twice": ["LSTM", "LSTM"],
    "gru_backwards": ["GRU"],
    "gru_that_resets_before": ["GRU"],
    "simple_rnn": ["RNN"],
    "unrolled": ["LSTM"],
    "bidirectional": ["LSTM", "LSTM"],
    "blocks_that_repeat": ["LSTM"] * 6,
    "states": ["GRU"],
    "each_frame": ["LSTM"],
    "hard_gates": ["Loop"],
    "masked": ["Loop"],
    "cells": ["Loop"],
}


@pytest.fixture(scope="module")
def files(tmp_path_factory, selected):
    out = tmp_path_factory.mktemp("recurrent") / "results.json"
    names = sorted(selected("files", "case"))
    subprocess.run([sys.executable, str(WORKER), str(out), *names], check=True, capture_output=True)
    return json.loads(out.read_text())


@pytest.mark.slow
@pytest.mark.parametrize("format", ["saved_model", "tflite", "onnx"])
@pytest.mark.parametrize("case", exhaustive_but(CASES, *QUICK))
def test_files_compute_what_keras_computes(files, case, format):
    found = files[f"{case}-{format}"]
    assert not isinstance(found, str), found
    assert found[0] < 4e-6


@pytest.mark.slow
@pytest.mark.parametrize("case", exhaustive_but(OPERATORS, *(OPERATORS.keys() & set(QUICK))))
def test_onnx_has_a_layer_as_an_operator_where_that_computes_the_same(files, case):
    assert files[f"{case}-onnx"][1] == OPERATORS[case]


def traced_layer(layer, x, **arguments):
    """What the form that takes the place of a layer computes in TensorFlow, for an unknown batch and length."""
    import tensorflow as tf

    from keras_transformer.export.graph.replaced_layers import replaced
    from keras_transformer.export.operations.layers import BY_FORMAT, EVERYWHERE

    layer(x)

    @tf.function(input_signature=[tf.TensorSpec((None, None, *x.shape[2:]))], autograph=False)
    def call(x):
        with replaced([layer], (*EVERYWHERE, *BY_FORMAT["tflite"])):
            return layer(x, **arguments)

    names = {
        node.op for each in call.get_concrete_function().graph.as_graph_def().library.function for node in each.node_def
    }
    return tf.nest.map_structure(lambda each: each.numpy(), call(x)), names


def test_a_loop_has_no_lists_and_equal_states():
    x = np.random.default_rng(0).normal(size=(3, 7, 4)).astype("float32")
    layer = keras.layers.LSTM(5, return_sequences=True, return_state=True)

    found, names = traced_layer(layer, x)

    assert "XlaDynamicUpdateSlice" in names
    assert not [name for name in names if name.startswith("TensorList")]
    for one, other in zip(found, layer(x), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)


def test_the_layer_is_itself_again_afterwards():
    x = np.ones((2, 3, 4), "float32")
    layer = keras.layers.GRU(2)
    traced_layer(layer, x)
    assert "inner_loop" not in vars(layer)


def test_a_trace_within_gives_back_what_it_found():
    from keras_transformer.export.graph.repeated_layers import RepeatedLayers
    from keras_transformer.export.graph.replaced_layers import ReplacedLayer, replaced

    layers = [
        keras.layers.TimeDistributed(keras.Sequential([keras.layers.Dense(3), keras.layers.Dense(3)])) for _ in "ab"
    ]
    for layer in layers:
        layer.build((None, None, 3))
    repeated = RepeatedLayers(layers)
    assert repeated.has_any
    constant = ReplacedLayer(keras.layers.TimeDistributed, "call", lambda layer, x: "replaced")
    with replaced(layers, [constant]):
        with repeated.traced_once(keras.StatelessScope()):
            pass
        assert [layer.call(None) for layer in layers] == ["replaced"] * 2
    assert not any("call" in vars(layer) for layer in layers)


def test_steps_of_a_dynamic_length_have_the_shape_of_eager_keras():
    x = np.random.default_rng(1).normal(size=(2, 5, 4)).astype("float32")
    layer = keras.layers.TimeDistributed(keras.layers.Dense(3))
    found, _ = traced_layer(layer, x)
    assert found.shape == (2, 5, 3)
    np.testing.assert_allclose(found, x @ layer.layer.kernel.numpy() + layer.layer.bias.numpy(), rtol=1e-5, atol=1e-6)


def test_a_mask_of_steps_goes_to_the_layer():
    x = np.random.default_rng(2).normal(size=(2, 3, 4, 5)).astype("float32")
    mask = np.array([[[1, 1, 0, 0], [1, 0, 0, 0], [1, 1, 1, 1]], [[1, 1, 1, 0], [1, 1, 1, 1], [1, 1, 0, 0]]], bool)
    layer = keras.layers.TimeDistributed(keras.layers.GlobalAveragePooling1D())
    found, _ = traced_layer(layer, x, mask=mask)
    expected = (x * mask[..., None]).sum(2) / mask.sum(2)[..., None]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
