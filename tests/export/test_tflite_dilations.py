"""Dilated convolutions over sequences in TFLite files; that they compute what Keras computes, the export has proven."""

import keras
import numpy as np
import pytest
from keras import layers

from keras_transformer.export import FullInt8, export
from keras_transformer.export.tflite.graph import graphs
from keras_transformer.export.tflite.tree import read_file

pytestmark = pytest.mark.slow
PARTS = {"SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND"}


def written(folder, length, quantize=None, **options):
    """The operators of a network of two dilated convolutions, of which the second has no bias."""
    keras.utils.set_random_seed(0)
    x = keras.Input((length, 6), name="x")
    y = layers.Conv1D(8, 3, dilation_rate=2, activation="relu", bias_initializer="normal", **options)(x)
    y = layers.Conv1D(4, 2, dilation_rate=4, use_bias=False, **options)(y)
    export(keras.Model(x, y), folder, ["tflite"], quantize=quantize, progress=False)
    (graph,) = graphs(read_file(folder / "model.tflite"))
    return graph, [graph.kind(each) for each in graph.subgraph.operators]


@pytest.mark.parametrize("padding", ["causal", "valid"])
def test_convolutions_are_one_operator_each(tmp_path, padding):
    graph, kinds = written(tmp_path, 24, padding=padding)
    convolutions = [each for each in graph.subgraph.operators if graph.kind(each) == "CONV_2D"]
    assert [each.builtinOptions.dilationWFactor for each in convolutions] == [2, 4]
    assert [each.builtinOptions.fusedActivationFunction for each in convolutions] == [1, 0]
    assert not PARTS & set(kinds)
    assert "ADD" not in kinds


@pytest.mark.parametrize(("length", "padding"), [(None, "causal"), (24, "same")])
def test_parts_of_other_lengths_stay(tmp_path, length, padding):
    _, kinds = written(tmp_path, length, padding=padding)
    assert set(kinds) >= PARTS


def test_they_are_of_integers(tmp_path):
    data = np.random.default_rng(0).normal(size=(32, 24, 6)).astype("float32")
    graph, kinds = written(tmp_path, 24, FullInt8(data), padding="causal")
    (first, second) = (each for each in graph.subgraph.operators if graph.kind(each) == "CONV_2D")
    assert graph.type(int(first.inputs[0])) == graph.type(int(second.outputs[0])) == "INT8"
    assert "ADD" not in kinds
