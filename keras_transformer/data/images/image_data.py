"""Image data sets as arrays: the digits of scikit-learn, data sets of `keras.datasets`, and folders or zips of images."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from keras_transformer.data.errors import ImageDataError, MissingDataError
from keras_transformer.data.images.folders import read_folders
from keras_transformer.utils.errors import one_line
from keras_transformer.utils.types import Path
from keras_transformer.version import install_command

_CLOTHES = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
_OBJECTS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_DIGITS = tuple("0123456789")


class ImageSet(NamedTuple):
    """Labeled images: images, uint8 `(n, H, W, C)`, and labels, int32 `(n,)`.

    Example:

    >>> images, labels = ImageSet(np.zeros((2, 8, 8, 3), "uint8"), np.array([0, 1], "int32"))
    >>> images.shape, labels.shape
    ((2, 8, 8, 3), (2,))
    """

    images: np.ndarray
    labels: np.ndarray


class ImageData(NamedTuple):
    """An image data set: a training set, a test set, and the names of the classes in the order of the labels.

    Example:

    >>> images = ImageSet(np.zeros((2, 8, 8, 3), "uint8"), np.array([0, 1], "int32"))
    >>> data = ImageData(train=images, test=images, class_names=("cat", "dog"))
    >>> data.class_names[data.train.labels[1]]
    'dog'
    """

    train: ImageSet
    test: ImageSet
    class_names: tuple[str, ...]


def load_images(
    name: str | None = None, data_dir: Path | None = None, *, test_fraction: float = 0.2, seed: int = 0
) -> ImageData:
    """Loads an image data set by name, or from folders or zips.

    The layout of `data_dir` is `train/CLASS/FILE` and `test/CLASS/FILE` (or `val` or `validation`); `train.zip` and
    `test.zip` with `CLASS/FILE`; or `CLASS/FILE`, from which a test set is split off. It can also be a zip of one of these
    layouts. Files without the extension of an image are ignored.

    Args:
        name: "digits", "cifar10", "fashion_mnist" or "mnist". All but the digits are downloaded once by Keras.
        data_dir: str or path, instead of `name`.
        test_fraction: float in (0, 1). Fraction of each class that is split off if there is no test set. Default 0.2.
        seed: int. Seed of the split. Default 0.

    Returns:
        An `ImageData`: `train.images`, `train.labels`, `test.images`, `test.labels`, `class_names`.

    Raises:
        MissingDataError: the path does not exist, or the download fails.
        NoImagesError, ClassMismatchError, CorruptImageError, ImageSizeError: invalid contents of `data_dir`.
        ImportError: scikit-learn (for the digits) or Pillow (for folders) is not installed.
        ValueError: an unknown name, or not exactly one of `name` and `data_dir`.

    Example:

    >>> data = load_images("digits")
    >>> data.train.images.shape, data.test.images.shape, len(data.class_names)
    ((1438, 8, 8, 1), (359, 8, 8, 1), 10)
    """
    if (name is None) == (data_dir is None):
        raise ValueError(f"Give either a name or a data_dir. Received: name={name!r}, data_dir={data_dir!r}")
    if not 0 < test_fraction < 1:
        raise ValueError(f"test_fraction must be between 0 and 1. Received: {test_fraction}")
    if data_dir is not None:
        train, test, class_names = read_folders(data_dir)
    elif name in DATASETS:
        train, test, class_names = DATASETS[name]()
    else:
        raise ValueError(f"Unknown data set {name!r}. Valid names: {', '.join(sorted(DATASETS))}")
    if test is None:
        train, test = _split(train, class_names, test_fraction, seed)
    return ImageData(ImageSet(*train), ImageSet(*test), class_names)


def _split(examples, class_names, test_fraction, seed):
    """Splits off `test_fraction` of every class, at least one image of each."""
    images, labels = examples
    generator = np.random.default_rng(seed)
    is_test = np.zeros(len(labels), "bool")
    for label, class_name in enumerate(class_names):
        members = generator.permutation(np.flatnonzero(labels == label))
        if len(members) < 2:
            raise ImageDataError(f"Class {class_name!r} has {len(members)} image(s): too few to split off a test set.")
        count = min(max(round(test_fraction * len(members)), 1), len(members) - 1)
        is_test[members[:count]] = True
    return (images[~is_test], labels[~is_test]), (images[is_test], labels[is_test])


def _digits():
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ImportError(f"The digits data set needs scikit-learn: {install_command('demo')}") from error
    digits: Any = load_digits()
    # From 0 .. 16 to 0 .. 255.
    images = np.round(digits.images * (255 / 16)).astype("uint8")
    return (images[..., None], digits.target.astype("int32")), None, _DIGITS


def _keras_dataset(name, class_names):
    def load():
        import keras

        try:
            splits = getattr(keras.datasets, name).load_data()
        except Exception as error:  # Keras raises no narrower class where a download fails.
            raise MissingDataError(f"The data set {name!r} could not be downloaded: {one_line(error)}") from error
        train, test = ((_with_channels(images), labels.reshape(-1).astype("int32")) for images, labels in splits)
        return train, test, class_names

    return load


def _with_channels(images):
    return images if images.ndim == 4 else images[..., None]


DATASETS = {
    "digits": _digits,
    "cifar10": _keras_dataset("cifar10", _OBJECTS),
    "fashion_mnist": _keras_dataset("fashion_mnist", _CLOTHES),
    "mnist": _keras_dataset("mnist", _DIGITS),
}
