"""Refusals quote settings as they stand in the file, and say what to do."""

import json
import pathlib
import shutil

import pytest

from keras_transformer.checkpoints import CheckpointError, Config, ConfigError, from_huggingface

DATA = pathlib.Path(__file__).parents[1] / "data" / "checkpoints"


@pytest.mark.parametrize(
    "values, read, message",
    [
        ({"n": "2"}, lambda c: c.integer("n"), "config.json: 'n' is \"2\"; it must be an integer."),
        ({"n": 0}, lambda c: c.integer("n"), "config.json: 'n' is 0; it must be an integer from 1 to 2147483647."),
        ({"n": True}, lambda c: c.number("n"), "config.json: 'n' is true; it must be a number."),
        ({"n": 1e300}, lambda c: c.number("n"), "config.json: 'n' is 1e+300; it must be a number."),
        ({"n": 10**400}, lambda c: c.number("n"), f"config.json: 'n' is {10**400}"[:100] + "...; it must be a number."),
        (
            {"layer_norm_eps": -1},
            lambda c: c.number("layer_norm_eps"),
            "config.json: 'layer_norm_eps' is -1; it must be above 0, and at most 1.",
        ),
        (
            {"rms_norm_eps": 1e-300},
            lambda c: c.number("rms_norm_eps"),
            "config.json: 'rms_norm_eps' is 1e-300; it must be above 0, and at most 1.",
        ),
        (
            {"hidden_dropout_prob": 1.5},
            lambda c: c.number("hidden_dropout_prob"),
            "config.json: 'hidden_dropout_prob' is 1.5; it must be from 0 to 1.",
        ),
        (
            {"rope_theta": 0},
            lambda c: c.number("rope_theta"),
            "config.json: 'rope_theta' is 0; it must be above 0.",
        ),
        ({"n": [1, None]}, lambda c: c.numbers("n"), "config.json: 'n' is [1, null]; it must be a list of numbers."),
        (
            {},
            lambda c: c.integer("n"),
            "config.json has no 'n', which this 'model_type' needs. Check that the file is complete.",
        ),
        (
            {"n": 2},
            lambda c: c.only("n", 1),
            "config.json: 'n' is 2; only 1 is supported. Checkpoints of this variant cannot be loaded.",
        ),
        (
            {"n": "gellu"},
            lambda c: c.choice("n", {"gelu": 1, "relu": 2}),
            "config.json: 'n' is \"gellu\"; it must be one of 'gelu', 'relu'; did you mean 'gelu'?",
        ),
    ],
)
def test_a_setting(values, read, message):
    with pytest.raises(ConfigError) as raised:
        read(Config(values))
    assert str(raised.value) == message


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"model_type": "llama4"}, "unknown model_type \"llama4\". Did you mean 'llama'?"),
        ({"architectures": ["BertForTranslation"]}, "pass task='backbone'"),
        ({"architectures": ["Bert"]}, 'is ["Bert"]; it must name a class of transformers'),
    ],
)
def test_a_kind_or_head(tmp_path, changes, message):
    folder = pathlib.Path(shutil.copytree(DATA / "bert-Model", tmp_path / "copy"))
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    with pytest.raises(CheckpointError) as raised:
        from_huggingface(folder, verbose=0)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
