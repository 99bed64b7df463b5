"""Hugging Face's settings of image processors and feature extractors."""

from __future__ import annotations

import os

from keras_transformer.utils.json_files import read_json
from keras_transformer.utils.types import JsonObject, Path

FILE, NESTED_FILE = "preprocessor_config.json", "processor_config.json"


def read_processor_config(folder: Path, part: str, error: type[Exception]) -> JsonObject:
    """Returns the settings of an image processor or a feature extractor.

    Args:
        folder: str or path.
        part: "image_processor" or "feature_extractor". The key in `processor_config.json`, which transformers 5 writes for
            multimodal models; `preprocessor_config.json` contains the settings alone.
        error: class of the exception to raise.

    Returns:
        dict.

    Raises:
        error: the folder or file does not exist, or is not a JSON object.

    Example:

    >>> with open("preprocessor_config.json", "w") as file:
    ...     _ = file.write('{"size": 224}')
    >>> read_processor_config(".", "image_processor", ValueError)
    {'size': 224}
    """
    if not os.path.isdir(folder):
        raise error(f"'{folder}' is not a folder.")
    nested = os.path.join(folder, NESTED_FILE)
    if os.path.isfile(nested):
        content = read_json(nested, error)
        if isinstance(content.get(part), dict):
            return content[part]
    path = os.path.join(folder, FILE)
    if not os.path.isfile(path):
        raise error(f"'{folder}' has no {FILE}, and no {NESTED_FILE} with {part!r}.")
    content = read_json(path, error)
    # transformers writes a nested section for a processor of two parts.
    return content[part] if isinstance(content.get(part), dict) else content


def has_processor(folder: Path, part: str) -> bool:
    """Returns whether a folder has settings of an image processor or feature extractor, valid or not.

    Args:
        folder: str or path.
        part: "image_processor" or "feature_extractor".

    Returns:
        bool.

    Example:

    >>> with open("preprocessor_config.json", "w") as file:
    ...     _ = file.write('{"feature_extractor_type": "ViTFeatureExtractor", "size": 224}')
    >>> has_processor(".", "image_processor"), has_processor(".", "feature_extractor")
    (True, False)
    """
    try:
        config = read_processor_config(folder, part, ValueError)
    except ValueError:
        return False
    # Image processors were once called feature extractors; only audio has a sampling rate.
    return ("sampling_rate" in config) == (part == "feature_extractor")


def is_count(value: object) -> bool:
    """Returns whether a setting is an int of at least 1."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def is_number(value: object) -> bool:
    """Returns whether a setting is a finite number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < float("inf")
