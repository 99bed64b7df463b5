"""The files in which Hugging Face keeps how pictures and sound are prepared, read with care."""

import os

from keras_transformer.utils.json_files import read_json

FILE, NESTED_FILE = "preprocessor_config.json", "processor_config.json"


def read_processor_config(folder, part, error):
    """The settings of an image processor or a feature extractor.

    Args:
        folder: str or path.
        part: "image_processor" or "feature_extractor": its name in `processor_config.json`, which transformers 5 writes for
            models of several modalities. `preprocessor_config.json` holds it alone.
        error: class of the exceptions.

    Returns:
        dict.

    Raises:
        error: there is no such folder or file, or it holds no JSON object.

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
        raise error(f"'{folder}' holds no {FILE}, and no {NESTED_FILE} with {part!r}.")
    content = read_json(path, error)
    # Written by transformers for a processor of two parts.
    return content[part] if isinstance(content.get(part), dict) else content


def has_processor(folder, part):
    """Whether a folder says how pictures, or sounds, are prepared; what it says is not judged.

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
    # Image processors were feature extractors once; only sound has a sample rate.
    return ("sampling_rate" in config) == (part == "feature_extractor")


def is_count(value):
    """Whether a setting is an int of at least 1."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def is_number(value):
    """Whether a setting is a finite number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < float("inf")
