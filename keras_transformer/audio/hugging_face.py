"""Conversion of transformers' feature extractor files to the arguments of `LogMel` and `SampleNormalization`."""

from typing import Any

from keras_transformer.audio.errors import FeatureExtractorError
from keras_transformer.utils.processor_config import is_count, read_processor_config
from keras_transformer.utils.types import Path

KIND, SAMPLES_KIND = "WhisperFeatureExtractor", "Wav2Vec2FeatureExtractor"
_DEFAULTS = {"feature_size": 80, "sampling_rate": 16_000, "hop_length": 160, "chunk_length": 30, "n_fft": 400}
# Upper limit of the filters, at any sample rate.
_MAX_FREQUENCY = 8000.0
# Larger values are mistakes: more than an hour per recording, or a finer transform than hearing.
_LIMITS = {"feature_size": 2048, "sampling_rate": 768_000, "hop_length": 2**16, "chunk_length": 3600, "n_fft": 2**14}


def settings(folder: Path) -> dict[str, Any]:
    """Returns the arguments of `LogMel` for the file of a folder.

    Raises:
        FeatureExtractorError: see `LogMel.from_huggingface`.
    """
    config = read_processor_config(folder, "feature_extractor", FeatureExtractorError)
    kind = config.get("feature_extractor_type")
    if kind != KIND:
        raise FeatureExtractorError(f"'{folder}' has a feature extractor of type {kind!r}. Supported: {KIND}.")
    values = {name: config.get(name, default) for name, default in _DEFAULTS.items()}
    for name, value in values.items():
        if not is_count(value) or value > _LIMITS[name]:
            raise FeatureExtractorError(
                f"The feature extractor of '{folder}': {name} must be an int from 1 to {_LIMITS[name]}. Received: {value!r}"
            )
    for name in ("dither", "padding_value"):
        if config.get(name):
            raise FeatureExtractorError(f"The feature extractor of '{folder}': {name} other than 0 is not supported.")
    arguments = {
        "num_mel_bins": values["feature_size"],
        "sample_rate": values["sampling_rate"],
        "frame_length": values["n_fft"],
        "hop_length": values["hop_length"],
        "frequency_range": (0.0, min(_MAX_FREQUENCY, values["sampling_rate"] / 2)),
        "num_samples": values["chunk_length"] * values["sampling_rate"],
        "normalization": "whisper",
    }
    return arguments


def sample_settings(folder: Path) -> dict[str, Any]:
    """Returns the arguments of `SampleNormalization` for the file of a folder.

    Raises:
        FeatureExtractorError: see `SampleNormalization.from_huggingface`.
    """
    config = read_processor_config(folder, "feature_extractor", FeatureExtractorError)
    # The first published files have no type.
    kind = config.get("feature_extractor_type", SAMPLES_KIND)
    if kind != SAMPLES_KIND:
        raise FeatureExtractorError(f"'{folder}' has a feature extractor of type {kind!r}. Supported: {SAMPLES_KIND}.")
    rate, normalize = config.get("sampling_rate", 16_000), config.get("do_normalize", True)
    for name, value, expected in (
        ("sampling_rate", rate, is_count(rate) and rate <= _LIMITS["sampling_rate"]),
        ("do_normalize", normalize, isinstance(normalize, bool)),
        ("feature_size", config.get("feature_size"), config.get("feature_size", 1) == 1),
        ("padding_value", config.get("padding_value"), not config.get("padding_value")),
        ("padding_side", config.get("padding_side"), config.get("padding_side", "right") == "right"),
    ):
        if not expected:
            raise FeatureExtractorError(f"The feature extractor of '{folder}': {name} {value!r} is not supported.")
    return {"sample_rate": rate, "normalize": normalize}
