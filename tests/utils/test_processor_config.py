"""The files in which Hugging Face keeps how pictures and sound are prepared."""

from pathlib import Path

import pytest

from keras_transformer.utils import json_files
from keras_transformer.utils.processor_config import has_processor, read_processor_config

DATA = Path(__file__).parents[1] / "data" / "processors"


@pytest.mark.parametrize(
    "folder, images, sounds",
    [("vit", True, False), ("old_vit", True, False), ("nested", True, False), ("whisper", False, True)]
    + [("nested_audio", False, True), ("pictures", False, False), ("nowhere", False, False)],
)
def test_which_folder_holds_what(folder, images, sounds):
    assert has_processor(DATA / folder, "image_processor") == images
    assert has_processor(DATA / folder, "feature_extractor") == sounds


def test_nested_files_come_first(tmp_path):
    (tmp_path / "preprocessor_config.json").write_text('{"image_processor": {"size": 1}, "size": 2}')
    assert read_processor_config(tmp_path, "image_processor", ValueError) == {"size": 1}
    (tmp_path / "processor_config.json").write_text('{"image_processor": {"size": 3}}')
    assert read_processor_config(tmp_path, "image_processor", ValueError) == {"size": 3}
    # Without such a part it is not what is looked for.
    (tmp_path / "processor_config.json").write_text('{"processor_class": "CLIPProcessor"}')
    assert read_processor_config(tmp_path, "image_processor", ValueError) == {"size": 1}


def test_a_file_that_is_too_large_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(json_files, "MAX_BYTES", 2**20)
    (tmp_path / "preprocessor_config.json").write_text(" " * (2**20 + 1))
    with pytest.raises(ValueError, match="larger than 1 MiB"):
        read_processor_config(tmp_path, "image_processor", ValueError)
