"""What can be wrong with recordings and with how they are prepared; every message is one line that names the culprit."""


class AudioError(ValueError):
    """A recording that cannot be read or used."""


class FeatureExtractorError(ValueError):
    """Settings of a feature extractor that are wrong, or that ask for what is not done here."""
