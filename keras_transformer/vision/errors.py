"""Errors of images and image processors. Each message is one line that names the image or setting at fault."""


class ImageError(ValueError):
    """An image that cannot be read or used."""


class ImageProcessorError(ValueError):
    """Invalid or unsupported settings of an image processor."""
