"""Conversion of transformers' feature extractor files to the arguments of layers."""

from __future__ import annotations

from keras_transformer.audio.errors import FeatureExtractorError
from keras_transformer.utils.processor_config import is_count, is_number, read_processor_config
from keras_transformer.utils.types import JsonObject, Path

KIND, SAMPLES_KIND = "WhisperFeatureExtractor", "Wav2Vec2FeatureExtractor"
NORMALIZED_KIND = "ParakeetFeatureExtractor"
_DEFAULTS = {"feature_size": 80, "sampling_rate": 16_000, "hop_length": 160, "chunk_length": 30, "n_fft": 400}
_NORMALIZED_DEFAULTS = {
    "feature_size": 80,
    "sampling_rate": 16_000,
    "win_length": 400,
    "hop_length": 160,
    "n_fft": 512,
}
# Upper limit of the filters, at any sample rate.
_MAX_FREQUENCY = 8000.0
# Larger values are mistakes: more than an hour per recording, or a finer transform than hearing.
_LIMITS = {"feature_size": 2048, "sampling_rate": 768_000, "hop_length": 2**16, "chunk_length": 3600, "n_fft": 2**14}
_LIMITS["win_length"] = _LIMITS["n_fft"]


def settings(folder: Path) -> JsonObject:
    """Returns the arguments of `LogMel` for the file of a folder.

    Raises:
        FeatureExtractorError: see `LogMel.from_huggingface`.
    """
    values, _ = _counts(folder, KIND, _DEFAULTS)
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


def normalized_settings(folder: Path) -> JsonObject:
    """Returns the arguments of `NormalizedLogMel` for the file of a folder.

    Raises:
        FeatureExtractorError: see `NormalizedLogMel.from_huggingface`.
    """
    values, config = _counts(folder, NORMALIZED_KIND, _NORMALIZED_DEFAULTS)
    preemphasis = config.get("preemphasis", 0.97)
    is_valid = preemphasis is None or is_number(preemphasis)
    if not is_valid or values["n_fft"] % 2 or not 2 <= values["win_length"] <= values["n_fft"]:
        raise FeatureExtractorError(
            f"The feature extractor of '{folder}': preemphasis must be a number or null, n_fft even, and win_length from 2 "
            f"to n_fft. Received: {preemphasis!r}, {values['n_fft']} and {values['win_length']}"
        )
    if config.get("padding_side", "right") != "right":
        raise FeatureExtractorError(f"The feature extractor of '{folder}': only padding on the right is supported.")
    names = ("num_mel_bins", "sample_rate", "frame_length", "hop_length", "fft_length")
    arguments: dict[str, object] = dict(zip(names, values.values(), strict=True))
    return arguments | {"preemphasis": float(preemphasis or 0.0)}


def _counts(folder: Path, kind: str, defaults: dict[str, int]) -> tuple[dict[str, int], JsonObject]:
    """Returns the settings in `defaults`, as in the file of a folder, and all of the file."""
    config = read_processor_config(folder, "feature_extractor", FeatureExtractorError)
    found = config.get("feature_extractor_type")
    if found != kind:
        raise FeatureExtractorError(f"'{folder}' has a feature extractor of type {found!r}. Supported: {kind}.")
    values = {name: config.get(name, default) for name, default in defaults.items()}
    for name, value in values.items():
        if not is_count(value) or value > _LIMITS[name]:
            raise FeatureExtractorError(
                f"The feature extractor of '{folder}': {name} must be an int from 1 to {_LIMITS[name]}. Received: {value!r}"
            )
    for name in ("dither", "padding_value"):
        if config.get(name):
            raise FeatureExtractorError(f"The feature extractor of '{folder}': {name} other than 0 is not supported.")
    return values, config


def sample_settings(folder: Path) -> JsonObject:
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
