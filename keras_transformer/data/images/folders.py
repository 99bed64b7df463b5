"""Reading images from folders and zips with the layout `split/class/file`."""

from __future__ import annotations

import io
import pathlib
import zipfile
from pathlib import PurePosixPath

import numpy as np

from keras_transformer.data.errors import (
    ClassMismatchError,
    CorruptImageError,
    ImageDataError,
    ImageSizeError,
    MissingDataError,
    NoImagesError,
)
from keras_transformer.utils.errors import FILE_ERRORS, one_line
from keras_transformer.utils.types import Path
from keras_transformer.version import install_command

_SUFFIXES = {".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"}
_TEST_NAMES = ("test", "val", "validation")


def read_folders(
    path: Path,
) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray] | None, tuple[str, ...]]:
    """Reads the images under `path`; see `load_images` for the layouts.

    Args:
        path: str or path. A folder or a zip.

    Returns:
        `(train, test, class_names)`: pairs of images, uint8 `(n, H, W, C)`, and labels, int32 `(n,)`. `test` is None if
        there is no test set. Classes are in alphabetical order, images in the order of their paths.

    Raises:
        ImageDataError: or one of its subclasses: see `load_images`.
    """
    path = pathlib.Path(path)
    if not path.exists():
        raise MissingDataError(f"No such folder or zip: {path}")
    files = _image_files(path)
    if not files:
        raise NoImagesError(f"No images in class folders (CLASS/FILE or train/CLASS/FILE) in {path}")
    splits = _by_split(files, path)
    class_names = _class_names(splits, path)
    images = _decode([file for split in splits for file in split])
    first = len(splits[0])
    examples = []
    for split, pixels in zip(splits, (images[:first], images[first:]), strict=False):
        examples.append((pixels, np.array([class_names.index(name.parts[-2]) for name, _ in split], "int32")))
    return examples[0], examples[1] if len(examples) > 1 else None, class_names


def _image_files(path):
    """Returns the images in a folder or zip, sorted: pairs of a relative path and a function that reads the bytes."""
    if path.is_file():
        found = _zip_members(path)
    else:
        found = []
        for file in path.rglob("*"):
            name = PurePosixPath(file.relative_to(path).as_posix())
            # Only a split may be a zip: other zips beside the folders are ignored.
            if file.suffix.lower() == ".zip" and len(name.parts) == 1 and name.stem in ("train", *_TEST_NAMES):
                found += [(PurePosixPath(name.stem, *member.parts[-2:]), read) for member, read in _zip_members(file)]
            elif file.is_file():
                found.append((name, file.read_bytes))
    return sorted(((name, read) for name, read in found if _is_image(name)), key=lambda pair: pair[0])


def _zip_members(path):
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError) as error:
        raise CorruptImageError(f"Not a readable zip: {path} ({error})") from error
    # The archive stays open until its last member is released.
    return [
        (PurePosixPath(info.filename), lambda info=info: archive.read(info))
        for info in archive.infolist()
        if not info.is_dir()
    ]


def _is_image(name):
    hidden = any(part.startswith((".", "__MACOSX")) for part in name.parts)
    return name.suffix.lower() in _SUFFIXES and len(name.parts) >= 2 and not hidden


def _by_split(files, path):
    """Returns one or two lists of files: for training and for testing."""
    found = {"train": [], "test": []}
    others = []
    for file in files:
        split = file[0].parts[-3] if len(file[0].parts) >= 3 else ""
        split = "test" if split in _TEST_NAMES else split
        found.get(split, others).append(file)
    if others and (found["train"] or found["test"]):
        raise ImageDataError(f"Images both inside and outside of train/ and test/ in {path}: {others[0][0]}")
    if found["test"] and not found["train"]:
        raise NoImagesError(f"Test images but no training images in {path}")
    return [split for split in (found["train"], found["test"], others) if split]


def _class_names(splits, path):
    classes = [sorted({name.parts[-2] for name, _ in split}) for split in splits]
    for other in classes[1:]:
        if other != classes[0]:
            odd = sorted(set(other) ^ set(classes[0]))
            raise ClassMismatchError(f"Training and test images differ in their classes in {path}: {', '.join(odd)}")
    if len(classes[0]) < 2:
        raise ClassMismatchError(f"Only one class, {classes[0][0]!r}, in {path}")
    return tuple(classes[0])


def _decode(files):
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(f"Reading image files needs Pillow: {install_command('demo')}") from error
    images = []
    for name, read in files:
        image = _open(Image, name, read)
        if images and image.shape[:2] != images[0].shape[:2]:
            (height, width), (first_height, first_width) = image.shape[:2], images[0].shape[:2]
            raise ImageSizeError(
                f"Images differ in size: {name} is {width}x{height}, {files[0][0]} is {first_width}x{first_height}"
            )
        images.append(image)
    channels = max(image.shape[-1] for image in images)
    return np.stack([np.broadcast_to(image, (*image.shape[:2], channels)) for image in images])


def _open(image_module, name, read):
    """Reads an image as uint8 `(H, W, 1)` if it is gray, else `(H, W, 3)`."""
    try:
        with image_module.open(io.BytesIO(read())) as image:
            pixels = np.asarray(image.convert("L" if image.mode in ("1", "L") else "RGB"))
    except (image_module.DecompressionBombError, *FILE_ERRORS) as error:
        raise CorruptImageError(f"Not a readable image: {name} ({one_line(error)})") from error
    return pixels if pixels.ndim == 3 else pixels[..., None]
