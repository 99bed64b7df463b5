"""What can be wrong with pictures and with how they are prepared; every message is one line that names the culprit."""


class ImageError(ValueError):
    """A picture that cannot be read or used."""


class ImageProcessorError(ValueError):
    """Settings of an image processor that are wrong, or that ask for what is not done here."""
