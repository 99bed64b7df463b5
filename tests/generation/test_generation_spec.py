"""`GenerationSpec`."""

import json

import pytest

from keras_transformer.generation import GenerationSpec

SPECS = {
    "decoder": GenerationSpec(50, max_length=16, start_id=1, end_id=(2, 3), has_prefill_exit=True),
    "encoder_decoder": GenerationSpec(50, is_encoder_decoder=True, start_id=0, end_id=2, cache_is_rewindable=False),
    "images": GenerationSpec(
        50, is_encoder_decoder=True, takes_prompts=True, source_names=("images",), source_shape=(None, 8, 8, 3)
    ),
}


@pytest.mark.parametrize("name", SPECS)
def test_json_round_trip(name):
    record = json.loads(json.dumps(SPECS[name].to_dict()))
    assert GenerationSpec.from_dict(record) == SPECS[name]


def test_manifests_of_earlier_versions_are_readable():
    required = {"vocabulary_size": 50, "max_length": None, "is_encoder_decoder": True, "start_id": 1, "end_id": [2]}
    spec = GenerationSpec.from_dict({**required, "exits": True, "source_shape": None})
    assert spec.has_prefill_exit
    assert not spec.takes_prompts
    assert spec.source_names == ("source_token_ids", "source_padding_mask")
    assert spec.end_ids == (2,)


@pytest.mark.parametrize(
    "field, value",
    [
        ("vocabulary_size", 0),
        ("vocabulary_size", "50"),
        ("max_length", 0),
        ("max_length", True),
        ("is_encoder_decoder", 1),
        ("takes_prompts", "yes"),
        ("source_names", "images"),
        ("source_names", [1]),
        ("source_shape", [0]),
        ("source_shape", "8"),
        ("cache_is_rewindable", None),
        ("has_prefill_exit", 2),
        ("start_id", -1),
        ("start_id", 50),
        ("end_id", [2, None]),
        ("end_id", 50),
        ("end_id", 1.5),
    ],
)
def test_invalid_fields_are_named(field, value):
    with pytest.raises(ValueError, match=field):
        GenerationSpec.from_dict({**SPECS["decoder"].to_dict(), field: value})


def test_missing_fields_are_named():
    with pytest.raises(ValueError, match="end_id"):
        GenerationSpec.from_dict({"vocabulary_size": 3, "max_length": None, "is_encoder_decoder": False, "start_id": 1})
