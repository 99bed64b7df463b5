"""Rotary positions of configs: those of version 5, and those before."""

import pathlib

import numpy as np
import pytest

from keras_transformer.checkpoints import Config, ConfigError, from_huggingface
from keras_transformer.checkpoints.building.rotary import rotary
from keras_transformer.generation import PromptTooLongError
from keras_transformer.positions import DynamicNTKScaling, LinearScaling, Llama3Scaling, LongRoPEScaling, YaRNScaling

LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
    "rope_type": "llama3",
}
DATA = pathlib.Path(__file__).parents[1] / "data" / "checkpoints"
LENGTH = {"max_position_embeddings": 4096}


def test_old_and_new_settings_are_the_same():
    old = rotary(Config({"rope_theta": 500000.0, "rope_scaling": LLAMA3, "max_position_embeddings": 131072}), 128)
    new = rotary(
        Config({"rope_parameters": {**LLAMA3, "rope_theta": 500000.0}, "max_position_embeddings": 131072}), 128
    )
    for found in (old, new):
        assert isinstance(found.scaling, Llama3Scaling)
        assert (found.max_wavelength, found.layout, found.rotary_dim) == (500000.0, "halves", None)
        assert found.scaling.get_config()["original_max_sequence_length"] == 8192
    np.testing.assert_array_equal(*(each.scaling.rates(128, 5e5) for each in (old, new)))


def test_nothing_said_is_the_default():
    found = rotary(Config({}), 64)
    assert (found.max_wavelength, found.scaling, found.max_sequence_length) == (10000.0, None, None)
    assert rotary(Config({"rope_scaling": None}), 64, theta=1e6).max_wavelength == 1e6


def test_the_oldest_name_of_a_kind():
    found = rotary(Config({"rope_scaling": {"type": "linear", "factor": 4.0}, **LENGTH}), 64)
    assert isinstance(found.scaling, LinearScaling)
    assert found.scaling.factor == 4.0


def test_a_part_of_the_head():
    assert rotary(Config({"partial_rotary_factor": 0.25}), 64).rotary_dim == 16
    assert rotary(Config({"rope_parameters": {"partial_rotary_factor": 0.5}}), 64).rotary_dim == 32


def test_yarn():
    settings = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}
    found = rotary(Config({"rope_parameters": settings, **LENGTH}), 64).scaling
    assert isinstance(found, YaRNScaling)
    assert found.magnitude == pytest.approx(0.1 * np.log(4) + 1)
    named = rotary(Config({"rope_parameters": {**settings, "attention_factor": 1.5}, **LENGTH}), 64).scaling
    assert named.magnitude == 1.5
    both = rotary(Config({"rope_parameters": {**settings, "mscale": 2.0, "mscale_all_dim": 1.0}, **LENGTH}), 64).scaling
    assert both.magnitude == pytest.approx((0.2 * np.log(4) + 1) / (0.1 * np.log(4) + 1))


def test_scalings_by_length_limit_generation_to_the_original_length():
    found = rotary(Config({"rope_scaling": {"type": "dynamic", "factor": 4.0}, **LENGTH}), 64)
    assert isinstance(found.scaling, DynamicNTKScaling)
    assert (found.scaling.factor, found.max_sequence_length) == (4.0, 4096)
    factors = {"short_factor": [1.0, 1.5], "long_factor": [2, 4.0]}
    settings = {"rope_type": "longrope", **factors, "original_max_position_embeddings": 1024}
    found = rotary(Config({"rope_parameters": settings, **LENGTH}), 4)
    assert isinstance(found.scaling, LongRoPEScaling)
    assert (found.scaling.short_factor, found.scaling.long_factor) == ([1.0, 1.5], [2.0, 4.0])
    assert found.max_sequence_length == 1024
    assert found.scaling.magnitude == pytest.approx(np.sqrt(1 + np.log(4) / np.log(1024)))
    named = rotary(Config({"rope_parameters": {**settings, "attention_factor": 1.5}, **LENGTH}), 4).scaling
    assert named.magnitude == 1.5


@pytest.mark.parametrize(
    "values, named",
    [
        ({"rope_parameters": {"rope_type": "longrope"}, **LENGTH}, "short_factor"),
        (
            {
                "rope_parameters": {"rope_type": "longrope", "short_factor": [1, 2], "long_factor": [1]},
                **LENGTH,
            },
            "'short_factor' is .* only .*32 numbers",
        ),
        ({"rope_parameters": {"rope_type": "spiral"}}, "spiral"),
        ({"rope_parameters": {"rope_type": "linear"}}, "factor"),
        ({"rope_parameters": {"rope_type": "linear", "factor": 0.5}}, "0.5"),
        ({"rope_parameters": [1]}, "section"),
        ({"rope_parameters": {"rope_type": "llama3", "factor": 2.0}, **LENGTH}, "low_freq_factor"),
        ({"rope_parameters": {"rope_theta": "wide"}}, "rope_theta"),
    ],
)
def test_settings_that_are_not_built(values, named):
    with pytest.raises(ConfigError, match=named):
        rotary(Config(values), 64)


@pytest.mark.slow
def test_generation_ends_where_longrope_changes_its_factors():
    model = from_huggingface(DATA / "phi3-CausalLM", verbose=0)
    assert model.max_length == 24
    assert len(model.generate([5] * 20, max_new_tokens=4)) == 4
    with pytest.raises(PromptTooLongError, match="24 that the model can hold"):
        model.generate([5] * 20, max_new_tokens=5)
