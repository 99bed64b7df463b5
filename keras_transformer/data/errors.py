"""Errors of data sets. Each message is one line that names the file, row or value at fault."""


class ImageDataError(ValueError):
    """Invalid image data. Base of the image errors."""


class MissingDataError(ImageDataError, FileNotFoundError):
    """The path does not exist, or the data set could not be downloaded."""


class NoImagesError(ImageDataError):
    """The path contains no class folders with images."""


class ClassMismatchError(ImageDataError):
    """The training and the test images do not have the same classes."""


class CorruptImageError(ImageDataError):
    """An image file or zip cannot be read."""


class ImageSizeError(ImageDataError):
    """Two images differ in size."""


class SequenceDataError(ValueError):
    """Invalid text or token ids. Base of the text errors."""


class TagError(SequenceDataError):
    """Tags that are not BIO tags, or not one per token."""


class TextFileError(SequenceDataError):
    """A text file has the wrong format; the message names the file and the line."""


class MissingTextFileError(TextFileError, FileNotFoundError):
    """A text file does not exist or cannot be opened."""
