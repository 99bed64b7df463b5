"""When compiled functions look at the structure of their model."""

import keras
import numpy as np
import pytest

from keras_transformer.backend.compilation.compiling import ModelStructure, compiled

X = np.float32([[1.0, 2.0, 3.0]])


@pytest.fixture
def model():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    return model


def adapt(model):
    layer = model.layers[0]
    layer.enable_lora(1)
    layer.lora_kernel_b.assign(np.ones((1, 2)))


@pytest.mark.skipif(keras.backend.backend() == "torch", reason="Nothing is compiled.")
def test_one_with_a_structure_looks_when_its_owner_does(model):
    structure = ModelStructure(model)
    function = compiled(lambda x: model(x), model, False, structure)
    before = np.asarray(function(X))
    adapt(model)
    np.testing.assert_array_equal(function(X), before)
    structure.version()
    np.testing.assert_allclose(function(X), model(X), rtol=1e-6)
    assert np.abs(np.asarray(model(X)) - before).max() > 0.1


def test_one_without_looks_in_each_call(model):
    function = compiled(lambda x: model(x), model, False)
    function(X)
    adapt(model)
    np.testing.assert_allclose(function(X), model(X), rtol=1e-6)
