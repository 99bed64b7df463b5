"""Loading of images in any form as Pillow images."""

from __future__ import annotations

import os
from types import ModuleType
from typing import Any

import numpy as np

from keras_transformer.utils.types import ArrayLike
from keras_transformer.version import install_command
from keras_transformer.vision.errors import ImageError

# Modes with at most 8 bits per channel; others would be truncated.
MODES = ("1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr", "HSV", "LAB")


def pillow() -> ModuleType:
    """Imports and returns the `PIL` package.

    Raises:
        ImportError: Pillow is not installed.
    """
    try:
        import PIL.Image
        import PIL.ImageOps
    except ImportError as error:
        raise ImportError(f"ImageProcessor needs Pillow: {install_command('vision')}") from error
    return PIL


def image_list(images: ArrayLike) -> list[Any]:
    """Returns a list of images from a list, a batch, or one image."""
    if isinstance(images, (str, os.PathLike)) or hasattr(images, "convert"):
        return [images]
    if isinstance(images, (list, tuple)):
        return list(images)
    images = np.asarray(images)
    if images.ndim == 4:
        return list(images)
    return [images]


def named_error(error: ImageError, image: object, number: int) -> ImageError:
    """Returns the error of `open_image` with the name of the image: its path, or its number."""
    name = f"'{image}'" if isinstance(image, (str, os.PathLike)) else f"Image {number}"
    return ImageError(f"{name} {error}.")


def open_image(image: Any, mode: str) -> Any:
    """Returns an image as a Pillow image in mode "RGB" or "L".

    Transparent pixels are blended with white. Files are rotated according to their EXIF data.

    Args:
        image: path, Pillow image, or uint8 array `(H, W)` or `(H, W, 1, 3 or 4)`.
        mode: "RGB" or "L".

    Raises:
        ImageError: the predicate of a sentence; the caller adds the name of the image.
    """
    library = pillow()
    if isinstance(image, (str, os.PathLike)):
        image = _from_file(image, library)
    elif not isinstance(image, library.Image.Image):
        image = _from_array(image, library)
    if 0 in image.size:
        raise ImageError(f"has no pixels: {image.size[1]} x {image.size[0]}")
    if image.mode not in MODES:
        raise ImageError(f"has the mode {image.mode!r}, more than 8 bits per channel: convert it to 8 bits first")
    try:
        return _converted(image, mode, library)
    except (OSError, SyntaxError, ValueError) as error:  # Pillow decodes files as late as here.
        raise ImageError(f"cannot be read: {error}") from None


def open_images(images: ArrayLike) -> list[Any]:
    """Returns images as Pillow images in mode "RGB".

    Raises:
        ImageError: names the image.
    """
    opened = []
    for number, image in enumerate(image_list(images)):
        try:
            opened.append(open_image(image, "RGB"))
        except ImageError as error:
            raise named_error(error, image, number) from None
    return opened


def _from_file(path, library):
    try:
        with library.Image.open(path) as image:
            return library.ImageOps.exif_transpose(image)
    except FileNotFoundError:
        raise ImageError("does not exist") from None
    except library.UnidentifiedImageError:
        raise ImageError("is not an image that Pillow can read") from None
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
