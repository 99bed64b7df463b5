import io
import zipfile

import keras
import numpy as np
import pytest
from PIL import Image

from keras_transformer.data import (
    ClassMismatchError,
    CorruptImageError,
    ImageDataError,
    ImageSizeError,
    MissingDataError,
    NoImagesError,
    load_images,
)


def png(value, size=(4, 3), mode="RGB"):
    """A picture of one value, 4 wide and 3 high, as bytes."""
    buffer = io.BytesIO()
    Image.new(mode, size, (value, 2 * value, 3 * value) if mode == "RGB" else value).save(buffer, "PNG")
    return buffer.getvalue()


def write_folder(root, files):
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return root


def write_zip(path, files):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


TRAIN = {"train/dog/b.png": png(2), "train/cat/a.png": png(1), "train/dog/a.png": png(3)}
TEST = {"test/dog/x.png": png(5), "test/cat/y.png": png(4)}


def check_animals(data):
    assert data.class_names == ("cat", "dog")
    np.testing.assert_array_equal(data.train.labels, [0, 1, 1])
    np.testing.assert_array_equal(data.test.labels, [0, 1])
    assert data.train.images.shape == (3, 3, 4, 3)
    assert data.train.images.dtype == np.uint8
    np.testing.assert_array_equal(data.train.images[:, 0, 0], [[1, 2, 3], [3, 6, 9], [2, 4, 6]])
    np.testing.assert_array_equal(data.test.images[:, 2, 3], [[4, 8, 12], [5, 10, 15]])


def test_folders(tmp_path):
    other = {"README.txt": b"no image", "train/notes.txt": b"no image", "train/cat/.hidden.png": b"no image"}
    check_animals(load_images(data_dir=write_folder(tmp_path, {**TRAIN, **TEST, **other})))


@pytest.mark.parametrize("prefix", [0, 1], ids=["split in the zip", "classes in the zip"])
def test_two_zips(tmp_path, prefix):
    for split, files in (("train", TRAIN), ("test", TEST)):
        write_zip(tmp_path / f"{split}.zip", {"/".join(name.split("/")[prefix:]): file for name, file in files.items()})
    check_animals(load_images(data_dir=tmp_path))


def test_one_zip(tmp_path):
    files = {f"animals/{name}": file for name, file in {**TRAIN, **TEST}.items()}
    check_animals(load_images(data_dir=write_zip(tmp_path / "animals.zip", {**files, "__MACOSX/cat/._a.png": b""})))


def test_val_stands_for_test(tmp_path):
    renamed = {name.replace("test", "val"): file for name, file in TEST.items()}
    check_animals(load_images(data_dir=write_folder(tmp_path, {**TRAIN, **renamed})))


def test_single_folder_is_split_within_each_class(tmp_path):
    files = {f"{name}/{index}.png": png(index) for name, count in (("cat", 10), ("dog", 5)) for index in range(count)}
    write_folder(tmp_path, files)
    data = load_images(data_dir=tmp_path, test_fraction=0.4)
    np.testing.assert_array_equal(np.bincount(data.test.labels), [4, 2])
    np.testing.assert_array_equal(np.bincount(data.train.labels), [6, 3])
    # Together they are the whole, each image with its own label.
    both = [(label, image[0, 0, 0]) for part in (data.train, data.test) for image, label in zip(*part, strict=True)]
    assert sorted(both) == [(0, index) for index in range(10)] + [(1, index) for index in range(5)]
    again, other = (
        load_images(data_dir=tmp_path, test_fraction=0.4),
        load_images(data_dir=tmp_path, seed=1, test_fraction=0.4),
    )
    np.testing.assert_array_equal(data.test.images, again.test.images)
    assert not np.array_equal(data.test.images, other.test.images)


def test_grey_stays_grey_unless_colors_are_among_them(tmp_path):
    gray = {
        "a/1.png": png(7, mode="L"),
        "a/2.png": png(8, mode="L"),
        "b/1.png": png(9, mode="L"),
        "b/2.png": png(6, mode="L"),
    }
    assert load_images(data_dir=write_folder(tmp_path / "gray", gray)).train.images.shape[1:] == (3, 4, 1)
    mixed = load_images(data_dir=write_folder(tmp_path / "mixed", {**gray, "b/3.png": png(1), "b/4.png": png(1)}))
    assert mixed.train.images.shape[1:] == (3, 4, 3)
    first = np.concatenate([mixed.train.images, mixed.test.images])[
        np.concatenate([mixed.train.labels, mixed.test.labels]) == 0
    ]
    assert sorted(first[:, 0, 0].tolist()) == [[7, 7, 7], [8, 8, 8]]


@pytest.mark.parametrize(
    "files, error, message",
    [
        ({}, NoImagesError, "No images"),
        ({"cat.png": png(1)}, NoImagesError, "No images"),
        (TEST, NoImagesError, "no training images"),
        ({**TRAIN, "test/cat/a.png": png(1), "test/fox/a.png": png(1)}, ClassMismatchError, "dog, fox"),
        ({"cat/1.png": png(1), "cat/2.png": png(1)}, ClassMismatchError, "Only one class, 'cat'"),
        ({**TRAIN, **TEST, "train/dog/bad.png": b"not a picture"}, CorruptImageError, "train/dog/bad.png"),
        ({**TRAIN, **TEST, "train/dog/cut.png": png(1)[:50]}, CorruptImageError, "train/dog/cut.png"),
        ({**TRAIN, **TEST, "test/dog/z.png": png(1, (5, 3))}, ImageSizeError, "test/dog/z.png is 5x3, .* is 4x3"),
        ({**TRAIN, **TEST, "extra/dog/z.png": png(1)}, ImageDataError, "extra/dog/z.png"),
        ({"cat/1.png": png(1), "dog/1.png": png(1), "dog/2.png": png(1)}, ImageDataError, "'cat' has 1 image"),
        ({"train.zip": b"not a zip", "test.zip": b"not a zip"}, CorruptImageError, "train.zip|test.zip"),
    ],
)
def test_unfit_folders(tmp_path, files, error, message):
    write_folder(tmp_path, files)
    with pytest.raises(error, match=message) as caught:
        load_images(data_dir=tmp_path)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, ValueError)


def test_missing_path(tmp_path):
    with pytest.raises(MissingDataError, match="nowhere"):
        load_images(data_dir=tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError):
        load_images(data_dir=tmp_path / "nowhere")


def test_digits():
    data = load_images("digits")
    again = load_images("digits")
    assert len(data.train.labels) + len(data.test.labels) == 1797
    assert len(data.test.labels) == 359
    assert data.class_names == tuple("0123456789")
    # A fifth of every class, and no image in both sets.
    shares = np.bincount(data.test.labels) / (np.bincount(data.test.labels) + np.bincount(data.train.labels))
    np.testing.assert_allclose(shares, 0.2, atol=0.005)
    assert not {image.tobytes() for image in data.train.images} & {image.tobytes() for image in data.test.images}
    assert data.train.images.max() == 255
    np.testing.assert_array_equal(data.test.images, again.test.images)


def test_keras_datasets(monkeypatch):
    color, gray = np.full((2, 32, 32, 3), 9, "uint8"), np.full((2, 28, 28), 9, "uint8")
    column, row = np.array([[3], [1]], "uint8"), np.array([3, 1], "uint8")
    monkeypatch.setattr(keras.datasets.cifar10, "load_data", lambda: ((color, column), (color[:1], column[:1])))
    monkeypatch.setattr(keras.datasets.fashion_mnist, "load_data", lambda: ((gray, row), (gray[:1], row[:1])))
    cifar, fashion = load_images("cifar10"), load_images("fashion_mnist")
    np.testing.assert_array_equal(cifar.train.labels, [3, 1])
    assert [cifar.class_names[label] for label in cifar.train.labels] == ["cat", "automobile"]
    assert fashion.train.images.shape == (2, 28, 28, 1)
    assert fashion.class_names[fashion.test.labels[0]] == "dress"


def test_failed_download_is_named(monkeypatch):
    def fail():
        raise Exception("URL fetch failure: no route to host\nmore")

    monkeypatch.setattr(keras.datasets.mnist, "load_data", fail)
    with pytest.raises(MissingDataError, match="'mnist' could not be downloaded: URL fetch failure: no route to host$"):
        load_images("mnist")


def test_arguments():
    with pytest.raises(ValueError, match="Valid names: cifar10, digits, fashion_mnist, mnist"):
        load_images("imagenet")
    with pytest.raises(ValueError, match="either a name or a data_dir"):
        load_images()
    with pytest.raises(ValueError, match="either a name or a data_dir"):
        load_images("digits", "somewhere")
    with pytest.raises(ValueError, match="test_fraction"):
        load_images("digits", test_fraction=1.0)
