"""Scalings of rotary angles against Hugging Face's: transformers 5.23.0, `ROPE_INIT_FUNCTIONS`, heads of 16 features."""

import keras
import numpy as np
import pytest

from keras_transformer.positions import (
    ROTARY_SCALINGS,
    DynamicNTKScaling,
    LinearScaling,
    Llama3Scaling,
    LongRoPEScaling,
    NTKScaling,
    Rotary,
    YaRNScaling,
)

CASES = {
    "linear": (
        LinearScaling(4.0),
        10000.0,
        [0.25, 0.07905694, 0.025, 0.007905695, 0.0025, 0.0007905695, 0.00025, 7.905695e-05],
    ),
    # "dynamic" at 16,384 tokens, factor 2, trained on 4,096: 2 * 4 - 1 = 7.
    "ntk": (
        NTKScaling(7.0),
        10000.0,
        [1.0, 0.2394814, 0.05735132, 0.01373457, 0.003289174, 0.0007876959, 0.0001886385, 4.517539e-05],
    ),
    "yarn": (
        YaRNScaling(4.0, original_max_sequence_length=4096),
        10000.0,
        [1.0, 0.3162278, 0.1, 0.02569351, 0.00625, 0.001383497, 0.00025, 7.905695e-05],
    ),
    "yarn with options": (
        YaRNScaling(8.0, 1024, beta_fast=16.0, beta_slow=2.0, magnitude=1.5, truncate=False),
        500000.0,
        [1.0, 0.1939228, 0.02242147, 0.0009115831, 0.0001767767, 3.428102e-05, 6.64787e-06, 1.289173e-06],
    ),
    "llama3": (
        Llama3Scaling(8.0, original_max_sequence_length=8192),
        500000.0,
        [1.0, 0.1939228, 0.03760603, 0.007292665, 0.000524846, 3.428102e-05, 6.64787e-06, 1.289173e-06],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_rates_are_those_of_the_reference(name):
    scaling, max_wavelength, expected = CASES[name]
    np.testing.assert_allclose(scaling.rates(16, max_wavelength), expected, rtol=1e-6)


def test_temperature_of_yarn():
    assert YaRNScaling(4.0).magnitude == pytest.approx(1.138629436111989)
    assert YaRNScaling(1.0).magnitude == 1


@pytest.mark.parametrize("layout", ["pairs", "halves"])
def test_rotary_turns_by_the_scaled_rates_and_stretches(layout):
    scaling = YaRNScaling(4.0, original_max_sequence_length=32)
    x = np.random.default_rng(0).normal(size=(1, 5, 2, 8))
    a, b = (slice(0, None, 2), slice(1, None, 2)) if layout == "pairs" else (slice(0, 4), slice(4, 8))
    angles = (np.arange(5)[:, None] * scaling.rates(8, 10000.0))[None, :, None]
    turned = (x[..., a] + 1j * x[..., b]) * np.exp(1j * angles) * scaling.magnitude
    output = np.asarray(Rotary(layout=layout, scaling=scaling)(x))
    np.testing.assert_allclose(output[..., a] + 1j * output[..., b], turned, atol=1e-5)


@pytest.mark.parametrize("name", ROTARY_SCALINGS)
def test_scaling_by_name_survives_config(name):
    rotary = Rotary.from_config(Rotary(scaling=name).get_config())
    assert type(rotary.scaling) is ROTARY_SCALINGS[name]
    assert rotary.scaling.get_config() == ROTARY_SCALINGS[name]().get_config()


@pytest.mark.parametrize("name", CASES)
def test_every_argument_survives_config(name):
    scaling = CASES[name][0]
    restored = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(scaling))
    np.testing.assert_array_equal(restored.rates(16, 1e5), scaling.rates(16, 1e5))
    assert restored.magnitude == scaling.magnitude


@pytest.mark.parametrize("layout", ["pairs", "halves"])
def test_scalings_by_length_take_the_length_of_each_row(layout):
    scaling = DynamicNTKScaling(2.0, original_max_sequence_length=8)
    x = np.random.default_rng(0).normal(size=(2, 3, 2, 8)).astype("float32")
    positions = np.array([[0, 1, 2], [30, 31, 4]])
    found = Rotary(layout=layout, scaling=scaling)(x, positions=positions)
    # 32 tokens: the factor 2 * 32 / 8 - 1.
    wanted = [
        Rotary(layout=layout)(x[:1], positions[:1]),
        Rotary(layout=layout, scaling=NTKScaling(7.0))(x[1:], positions[1:]),
    ]
    np.testing.assert_allclose(found, np.concatenate(wanted), atol=1e-5)


def test_longrope_changes_its_factors_at_the_original_length():
    scaling = LongRoPEScaling([1.0, 2.0], [4.0, 8.0], 4.0, 16, magnitude=1.5)
    restored = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(scaling))
    for each in (scaling, restored):
        np.testing.assert_allclose(each.stretch(np.array([16, 17]), 4), [[1.0, 0.5], [0.25, 0.125]])
        assert each.magnitude == 1.5
    with pytest.raises(ValueError, match="short_factor must have a factor for each of 4 pairs. Received: 2"):
        scaling.stretch(np.array([1]), 8)
    with pytest.raises(ValueError, match="positive"):
        LongRoPEScaling([0.0])


def test_refused():
    with pytest.raises(ValueError, match="factor must be at least 1"):
        LinearScaling(0.5)
    with pytest.raises(ValueError, match="beta_slow"):
        YaRNScaling(2.0, beta_slow=32.0)
    with pytest.raises(ValueError, match="low_freq_factor"):
        Llama3Scaling(low_freq_factor=4.0)
    with pytest.raises(ValueError, match="at least 4 rotated features"):
        NTKScaling().rates(2, 10000.0)
    with pytest.raises(ValueError, match="dynamic_ntk, linear, llama3, longrope, ntk, yarn"):
        Rotary(scaling="no_such")
