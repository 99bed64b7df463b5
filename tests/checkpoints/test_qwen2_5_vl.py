"""Configs and names of tensors of Qwen2.5-VL, of several versions of transformers."""

import json
import pathlib

import pytest
from safetensors.numpy import load_file, save_file

from checkpoint_cases import Expected, difference, predicted
from keras_transformer import checkpoints

SOURCE = pathlib.Path(__file__).parents[1] / "data" / "checkpoints" / "qwen2_5_vl-ConditionalGeneration"


def written(folder, change, rename=lambda name: name):
    """A folder with a changed config and other names of tensors."""
    config = json.loads((SOURCE / "config.json").read_text())
    change(config)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(
        {rename(name): array for name, array in load_file(SOURCE / "model.safetensors").items()},
        folder / "model.safetensors",
    )
    return folder


def as_published(config):
    """The settings of the decoder outside of a section, as in the published files."""
    text = config.pop("text_config")
    rotary = text.pop("rope_parameters")
    text.pop("model_type")
    config |= text
    config["rope_theta"] = rotary["rope_theta"]
    config["rope_scaling"] = {"type": "mrope", "mrope_section": rotary["mrope_section"]}
    config["vision_config"]["model_type"] = "qwen2_5_vl"


def of_version_5(name):
    if name.startswith("visual."):
        return f"model.{name}"
    return name.replace("model.", "model.language_model.")


@pytest.mark.slow
@pytest.mark.parametrize(
    "change, rename",
    [(as_published, lambda name: name), (lambda config: None, of_version_5)],
    ids=["published", "version_5"],
)
def test_other_files_of_the_same_model(change, rename, tmp_path):
    model, expected = checkpoints.from_huggingface(written(tmp_path, change, rename), verbose=0), Expected(SOURCE)
    assert difference(predicted(model, expected.inputs), expected.outputs, expected.inputs)[1] <= 2e-6
    assert model.end_id == 3


@pytest.mark.parametrize(
    "section, name, value, message",
    [
        ("text_config", "rope_parameters", {"rope_type": "dynamic", "factor": 2.0}, "'rope_type' is \"dynamic\""),
        ("text_config", "rope_parameters", {"mrope_section": [1, 1, 1]}, "three integers that add up to 4"),
        ("text_config", "rope_parameters", {}, "needs heads of 128"),
        ("text_config", "head_dim", 4, "'head_dim' is 4"),
        ("vision_config", "out_hidden_size", 8, "'out_hidden_size' is 8"),
        ("vision_config", "rope_parameters", {"rope_type": "linear"}, 'only "axial"'),
        ("vision_config", "window_size", 5, "'window_size' is 5"),
        ("vision_config", "fullatt_block_indexes", 1, "a list of blocks"),
    ],
)
def test_settings_that_are_not_supported_are_refused(section, name, value, message, tmp_path):
    folder = written(tmp_path, lambda config: config[section].update({name: value}))
    with pytest.raises(checkpoints.CheckpointError, match=message):
        checkpoints.from_huggingface(folder, verbose=0)
