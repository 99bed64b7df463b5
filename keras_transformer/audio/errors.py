"""Errors of recordings and feature extractors. Each message is one line that names the file or setting at fault."""


class AudioError(ValueError):
    """A recording that cannot be read or used."""


class FeatureExtractorError(ValueError):
    """Invalid or unsupported settings of a feature extractor."""
