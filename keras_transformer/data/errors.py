"""What can be wrong with the data; every message is one line that names the culprit."""


class ImageDataError(ValueError):
    """Image data that cannot be used; the base of the errors below."""


class MissingDataError(ImageDataError, FileNotFoundError):
    """The path does not exist, or the data set could not be downloaded."""


class NoImagesError(ImageDataError):
    """A place that should hold folders of images holds none."""


class ClassMismatchError(ImageDataError):
    """The training and the test images do not have the same classes."""


class CorruptImageError(ImageDataError):
    """A file that is named like an image, or like a zip of images, cannot be read as one."""


class ImageSizeError(ImageDataError):
    """Two images differ in size."""


class SequenceDataError(ValueError):
    """Text or token ids that cannot be used as asked; the base of the errors below."""


class TagError(SequenceDataError):
    """Tags that are not BIO, or not one a token."""


class TextFileError(SequenceDataError):
    """A text file that cannot be read as what it should be; the message names the file and the line."""


class MissingTextFileError(TextFileError, FileNotFoundError):
    """A text file does not exist or cannot be opened."""
