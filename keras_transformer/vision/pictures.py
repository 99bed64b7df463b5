"""Pictures in whatever form they are given, as Pillow's."""

import os

import numpy as np

from keras_transformer.utils.types import Tensor
from keras_transformer.version import install_command
from keras_transformer.vision.errors import ImageError

# The modes that have at most 8 bits a channel; another one would be cut to them.
MODES = ("1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr", "HSV", "LAB")


def pillow():
    """The `PIL` package with the modules in use, imported on first use.

    Raises:
        ImportError: it is not installed; says how to.
    """
    try:
        import PIL.Image
        import PIL.ImageOps
    except ImportError as error:
        raise ImportError(f"ImageProcessor needs Pillow: {install_command('vision')}") from error
    return PIL


def as_list(images: Tensor):
    """Pictures as a list: of one, if one was given."""
    if isinstance(images, (str, os.PathLike)) or hasattr(images, "convert"):
        return [images]
    if isinstance(images, (list, tuple)):
        return list(images)
    images = np.asarray(images)
    if images.ndim == 4:
        return list(images)
    return [images]


def open_picture(image, mode):
    """A picture of Pillow in "RGB" or "L".

    What is transparent is laid on white. Files are turned upright as their EXIF data says.

    Args:
        image: path, picture of Pillow, or uint8 array `(H, W)` or `(H, W, 1, 3 or 4)`.
        mode: "RGB" or "L".

    Raises:
        ImageError: says what is wrong; the caller says with which picture.
    """
    library = pillow()
    if isinstance(image, (str, os.PathLike)):
        image = _from_file(image, library)
    elif not isinstance(image, library.Image.Image):
        image = _from_array(image, library)
    if 0 in image.size:
        raise ImageError(f"has no pixels: {image.size[1]} x {image.size[0]}")
    if image.mode not in MODES:
        raise ImageError(f"has the mode {image.mode!r}, more than 8 bits a channel: scale it to 8 bits first")
    try:
        return _converted(image, mode, library)
    except (OSError, SyntaxError, ValueError) as error:  # A file is decoded as late as here.
        raise ImageError(f"cannot be read: {error}") from None


def _from_file(path, library):
    try:
        with library.Image.open(path) as image:
            return library.ImageOps.exif_transpose(image)
    except FileNotFoundError:
        raise ImageError("does not exist") from None
    except library.UnidentifiedImageError:
        raise ImageError("is no picture that Pillow can read") from None
    except (OSError, SyntaxError, ValueError, EOFError, library.Image.DecompressionBombError) as error:
        raise ImageError(f"cannot be read: {error}") from None


def _from_array(array, library):
    array = np.asarray(array)
    if array.dtype != np.uint8:
        raise ImageError(f"must be of dtype uint8, not {array.dtype}")
    if array.ndim == 3 and array.shape[-1] == 1:
        array = array[..., 0]
    if array.ndim != 2 and not (array.ndim == 3 and array.shape[-1] in (3, 4)):
        raise ImageError(f"must be (height, width) or (height, width, 1, 3 or 4 channels), not {array.shape}")
    if 0 in array.shape:
        raise ImageError(f"has no pixels: {array.shape[0]} x {array.shape[1]}")
    return library.Image.fromarray(np.ascontiguousarray(array))


def _converted(image, mode, library):
    if "A" in image.getbands() or "a" in image.getbands() or image.info.get("transparency") is not None:
        image = image.convert("RGBA")
        white = library.Image.new("RGBA", image.size, (255, 255, 255, 255))
        image = library.Image.alpha_composite(white, image)
    return image.convert(mode)
