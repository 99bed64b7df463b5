"""How a model is sampled where a request does not say: read, checked, and kept in the description of the model."""

import pytest

from keras_transformer.generation import GenerationSpec
from keras_transformer.generation.sampling_defaults import SamplingDefaults


@pytest.mark.parametrize(
    "config, expected",
    [
        ({"do_sample": True, "temperature": 0.6, "top_p": 0.9, "top_k": 0}, SamplingDefaults(0.6, top_p=0.9)),
        ({"do_sample": True, "top_k": 20}, SamplingDefaults(1.0, top_k=20)),
        # transformers ignores what is for sampling where it does not sample.
        ({"temperature": 0.6, "repetition_penalty": 1.1}, SamplingDefaults(0.0, repetition_penalty=1.1)),
        ({"do_sample": False, "top_p": 0.5}, SamplingDefaults()),
        ({"eos_token_id": 2, "temperature": None}, None),
    ],
)
def test_a_generation_config_is_read_as_transformers_does(config, expected):
    assert SamplingDefaults.from_generation_config(config) == expected


@pytest.mark.parametrize(
    "record, words",
    [
        ({"temperature": -1}, "temperature of sampling must be from 0 to 100"),
        ({"top_p": 0}, "top_p of sampling must be above 0 to 1"),
        ({"top_k": 1.5}, "top_k of sampling"),
        ({"heat": 1}, "heat; valid: temperature, top_k"),
    ],
)
def test_what_is_out_of_range_is_refused(record, words):
    with pytest.raises(ValueError, match=words):
        SamplingDefaults.from_dict(record)


def test_it_is_part_of_the_description_of_a_model():
    spec = GenerationSpec(50, sampling=SamplingDefaults(0.5, top_k=3))
    assert spec.to_dict()["sampling"]["top_k"] == 3
    assert GenerationSpec.from_dict(spec.to_dict()) == spec
    assert "sampling" not in GenerationSpec(50).to_dict()
