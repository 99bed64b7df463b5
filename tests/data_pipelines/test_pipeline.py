import keras
import numpy as np
import pytest

from keras_transformer import attention, models, tasks
from keras_transformer.data import Augmentation, batches, on_pixels

# Image i is i everywhere.
IMAGES = np.broadcast_to(np.arange(10, dtype="uint8").reshape(-1, 1, 1, 1), (10, 4, 4, 1))
LABELS = np.arange(10) % 3


def epoch(dataset):
    return [(pixels.numpy(), labels.numpy()) for pixels, labels in dataset]


def numbers(parts):
    return [int(value) for pixels, _ in parts for value in pixels[:, 0, 0, 0]]


def test_in_order_and_complete_without_shuffle():
    parts = epoch(batches((IMAGES, LABELS), 4, 3))
    assert [len(pixels) for pixels, _ in parts] == [4, 4, 2]
    assert numbers(parts) == list(range(10))
    assert parts[0][0].dtype == np.float32
    np.testing.assert_array_equal(np.concatenate([labels for _, labels in parts]), np.eye(3)[LABELS])


def test_shuffles_images_with_their_labels_anew_in_each_epoch():
    dataset = batches((IMAGES, LABELS), 3, 3, shuffle=True)
    first, second = epoch(dataset), epoch(dataset)
    assert len(dataset) == 3  # the tenth image is left out
    assert [pixels.shape for pixels, _ in first] == [(3, 4, 4, 1)] * 3
    assert len(set(numbers(first))) == 9
    assert numbers(first) != numbers(second)
    for pixels, labels in first + second:
        np.testing.assert_array_equal(labels.argmax(-1), pixels[:, 0, 0, 0] % 3)


def test_seed_decides_every_epoch():
    def two_epochs(seed):
        augmentation = Augmentation(shift=1, color=0.5)
        dataset = batches((IMAGES + 100, LABELS), 5, 3, augmentation=augmentation, shuffle=True, seed=seed)
        return [np.concatenate([pixels for pixels, _ in epoch(dataset)]) for _ in range(2)]

    one, same, other = two_epochs(7), two_epochs(7), two_epochs(8)
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one[0], one[1])
    assert not np.array_equal(one[0], other[0])


def test_augmentation_differs_from_batch_to_batch():
    images = np.full((40, 8, 8, 1), 50, "uint8")
    images[:, 3, 3] = 99
    parts = epoch(batches((images, np.zeros(40, int)), 10, 2, augmentation=Augmentation(shift=3)))
    assert all(not np.array_equal(parts[0][0], pixels) for pixels, _ in parts[1:])


def test_label_smoothing_by_hand():
    ((_, labels),) = epoch(batches((IMAGES[:2], np.array([0, 2])), 2, 4, label_smoothing=0.2))
    np.testing.assert_allclose(labels, [[0.85, 0.05, 0.05, 0.05], [0.05, 0.05, 0.85, 0.05]], rtol=1e-6)


@pytest.mark.parametrize(
    "examples, arguments, message",
    [
        ((IMAGES, LABELS[:9]), {}, "images"),
        ((IMAGES[..., 0], LABELS), {}, "images"),
        ((IMAGES, LABELS + 1), {}, "Labels must be integers from 0 to 2"),
        ((IMAGES, LABELS - 1), {}, "Labels"),
        ((IMAGES, LABELS / 2), {}, "Labels"),
        ((IMAGES, LABELS), {"batch_size": 11, "shuffle": True}, "batch_size"),
        ((IMAGES, LABELS), {"batch_size": 0}, "batch_size"),
        ((IMAGES, LABELS), {"label_smoothing": 1.0}, "label_smoothing"),
    ],
)
def test_refuses(examples, arguments, message):
    with pytest.raises(ValueError, match=message):
        batches(examples, num_classes=3, **{"batch_size": 2, **arguments})


def small_classifier():
    backbone = models.ViT(models.Size(1, 8, 2, 16), patch_size=4, image_size=8, num_channels=2)
    return tasks.ImageClassifier(backbone, 3)


def test_on_pixels_normalizes_each_channel_inside():
    images = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 2)).astype("uint8")
    images[..., 1] //= 4
    inner = small_classifier()
    model = on_pixels(inner, images)
    mean, deviation = images.mean(axis=(0, 1, 2)), images.std(axis=(0, 1, 2))
    pixels = images.astype("float32")
    np.testing.assert_allclose(model(pixels), inner([(pixels - mean) / deviation]), atol=1e-5)
    assert [each.name for each in model.inputs] == ["images"]
    assert model.output_names == ["probabilities"]
    assert list(attention.attention_maps(model)(pixels)) == ["encoder_block_0/self_attention"]
    model.layers[-1].bias.assign([5.0, 0.0, 0.0])  # the weights are shared
    np.testing.assert_allclose(model(pixels), inner([(pixels - mean) / deviation]), atol=1e-5)


def test_on_pixels_survives_saving_and_a_channel_without_variance(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 2)).astype("float32")
    images[..., 1] = 17
    model = on_pixels(small_classifier(), images)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert np.isfinite(model(images)).all()
    np.testing.assert_array_equal(loaded(images), model(images))


def test_on_pixels_keeps_pixels_exact_in_mixed_precision():
    inner = keras.Sequential([keras.Input((1, 1, 1)), keras.layers.Identity(dtype="float32")])
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = on_pixels(inner, np.array([0.0, 2.0]).reshape(2, 1, 1, 1))
    finally:
        keras.config.set_dtype_policy("float32")
    # 259 is no bfloat16 number.
    assert float(model(np.full((1, 1, 1, 1), 259.0, "float32"))[0, 0, 0, 0]) == 258.0
