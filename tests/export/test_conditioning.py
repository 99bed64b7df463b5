"""Rounding errors of the model are distinguished from errors of the converter."""

import keras
import numpy as np
import pytest

from keras_transformer.export import ParityError, export
from keras_transformer.export.verification import verify
from keras_transformer.export.verification.conditioning import movement

# One unit in the last place of float32 between 2^13 and 2^14, the magnitude of the weights below.
STEP = 2.0**-10


def difference_of_large_weights():
    """`x · 10,000 + y · -9,999`: of ones, 1."""
    inputs = keras.Input((2,), name="x")
    model = keras.Model(inputs, keras.layers.Dense(1, use_bias=False, name="y")(inputs))
    model.set_weights([np.array([[10000.0], [-9999.0]], "float32")])
    return model


def test_outputs_move_by_what_the_weights_are_rounded_by():
    model = difference_of_large_weights()
    variables = [keras.Variable(weight) for weight in model.get_weights()]
    inputs = {"x": np.ones((1, 2), "float32")}
    (moved,) = movement(
        lambda given: {"y": keras.ops.matmul(given["x"], variables[0])}, variables, inputs, {"y": np.ones((1, 1))}
    ).values()
    # Each of the two weights is rounded up, down or not at all.
    assert moved in (STEP, 2 * STEP)
    np.testing.assert_array_equal(variables[0], model.get_weights()[0])


@pytest.mark.parametrize(("difference", "is_rounding"), [(1e-3, True), (1e-2, False)])
def test_a_difference_that_rounding_makes_is_said_to_be_so(monkeypatch, tmp_path, difference, is_rounding):
    def differs(directory, format, probes, tolerance, *_):
        raise ParityError(format, "y", probes["serve"][0].label, difference, 1.0, tolerance)

    monkeypatch.setattr(verify, "verify_format", differs)
    model = difference_of_large_weights()
    ones = {"x": np.ones((1, 2), "float32")}
    with pytest.raises(ParityError, match=f"differs from Keras by {difference:.3g}") as caught:
        export(model, tmp_path / "bundle", formats=["saved_model"], probes=[ones])
    assert ("rounding the weights differently moves the model itself by" in str(caught.value)) == is_rounding
    assert caught.value.difference == difference
    np.testing.assert_array_equal(model.get_weights()[0], [[10000.0], [-9999.0]])
    assert not (tmp_path / "bundle").exists()
