"""Segmenters: what they return for images of any size, their loss and their mean IoU, and what they refuse."""

import keras
import numpy as np
import pytest
from PIL import Image

from keras_transformer import load_model, models, tasks, vision

SIZE = models.SegFormerSize((8, 12), (1, 1), (2, 3), (5, 3), (3, 2), (2, 1), (2, 1))
PROCESSOR = vision.ImageProcessor(size={"shortest_edge": 20}, mean=[0.5] * 3, std=[0.2] * 3)


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(1)
    model = tasks.SemanticSegmenter(models.SegFormer(SIZE, stochastic_depth=0.0), 4, hidden_dim=6, dropout=0.0)
    rng = np.random.default_rng(0)
    model.set_weights([weight + rng.uniform(0, 0.5, weight.shape) for weight in model.get_weights()])
    model.processor = PROCESSOR
    # All classes are equally likely, so that masks have several.
    bias = model.get_layer("logits").bias
    bias.assign(bias - np.asarray(model(PROCESSOR(pictures()[2])))[0].mean((0, 1)))
    return model


def pictures():
    rng = np.random.default_rng(0)
    return [rng.integers(0, 256, (*size, 3)).astype("uint8") for size in ((30, 40), (50, 21), (60, 80))]


def enlarged(logits, size):
    """The logits `(rows, columns, classes)` at each pixel of an image: half-pixel centers, edges repeated, in float64."""
    for axis, length in enumerate(size):
        old = logits.shape[axis]
        centers = np.clip((np.arange(length) + 0.5) * old / length - 0.5, 0, old - 1)
        low = np.minimum(np.floor(centers).astype(int), old - 1)
        high, share = np.minimum(low + 1, old - 1), centers - low
        share = share.reshape([-1 if each == axis else 1 for each in range(logits.ndim)])
        logits = np.take(logits, low, axis) * (1 - share) + np.take(logits, high, axis) * share
    return logits


def test_masks_have_the_size_of_the_images(model):
    images = pictures()
    together = model.segment(images)
    assert [mask.shape for mask in together] == [(30, 40), (50, 21), (60, 80)]
    for image, mask in zip(images, together, strict=True):
        logits = np.asarray(model(PROCESSOR(image)))[0].astype("float64")
        values = enlarged(logits, image.shape[:2])
        np.testing.assert_allclose(np.take_along_axis(values, mask[..., None], -1)[..., 0], values.max(-1), atol=1e-4)
        assert mask.dtype == np.int32
        (alone,) = model.segment(image)
        assert (alone != mask).mean() < 0.01
    assert len(np.unique(together[2])) > 1


def test_masks_in_the_graph_are_those_of_segment(model):
    image = pictures()[0][:, :27]
    pixels = PROCESSOR(image)
    inside = np.asarray(tasks.with_masks(model)(pixels)["masks"])[0]
    values = enlarged(np.asarray(model(pixels))[0].astype("float64"), pixels.shape[1:3])
    np.testing.assert_allclose(np.take_along_axis(values, inside[..., None], -1)[..., 0], values.max(-1), atol=1e-4)


def test_the_head_is_equation_4_of_the_paper(model):
    """The maps are projected, resized and joined, the last first, before the 1 x 1 convolution of all channels."""
    pixels = PROCESSOR(pictures()[0])
    layers = [model.get_layer(f"feature_map_{stage}").output for stage in range(2)]
    maps = [np.asarray(each)[0].astype("float64") for each in keras.Model(model.input, layers)(pixels)]
    weight = {each.path: np.asarray(each).astype("float64") for each in model.weights}
    joined, kernels = [], []
    for stage in (1, 0):
        x = maps[stage] @ weight[f"head_projection_{stage}/kernel"] + weight[f"head_projection_{stage}/bias"]
        joined.append(enlarged(x, maps[0].shape[:2]))
        kernels.append(weight[f"head_fusion_{stage}/kernel"])
    x = np.concatenate(joined, -1) @ np.concatenate(kernels, 0)
    x = (x - weight["head_norm/moving_mean"]) / np.sqrt(weight["head_norm/moving_variance"] + 1e-5)
    x = np.maximum(x * weight["head_norm/gamma"] + weight["head_norm/beta"], 0)
    expected = x @ weight["logits/kernel"] + weight["logits/bias"]
    np.testing.assert_allclose(np.asarray(model(pixels))[0], expected, atol=1e-4 * np.abs(expected).max())


def test_loss_and_mean_iou_count_the_pixels_that_have_a_class(model, tmp_path):
    images = np.stack([picture[:30, :21] for picture in pictures()])
    labels = np.random.default_rng(2).integers(0, 4, (3, 30, 21))
    labels[:, :11], labels[1] = 255, 255
    labels = vision.mask_targets(labels, (24, 32))
    data = vision.ImageProcessor(size=(24, 32)).dataset(images, labels, batch_size=3)
    pixels, targets = data[0]
    assert targets.shape == (3, 24, 32)
    logits = [enlarged(each.astype("float64"), (24, 32)) for each in np.asarray(model(pixels))]
    values = np.stack(logits)
    likely = values - np.log(np.exp(values - values.max(-1, keepdims=True)).sum(-1, keepdims=True))
    likely = likely - values.max(-1, keepdims=True)
    valid = targets != 255
    expected = -np.take_along_axis(likely, np.where(valid, targets, 0)[..., None], -1)[..., 0][valid].mean()
    found, iou = values.argmax(-1)[valid], []
    for label in range(4):
        union = (found == label) | (targets[valid] == label)
        iou.append(((found == label) & (targets[valid] == label)).sum() / union.sum())
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=255)
    metric = keras.metrics.MeanIoU(4, ignore_class=255, sparse_y_pred=False, name="mean_iou")
    model.compile(keras.optimizers.SGD(0.0), loss=loss, metrics=[metric], jit_compile=False)
    scores = model.evaluate(pixels, targets, verbose=0, return_dict=True)
    np.testing.assert_allclose(scores["loss"], expected, rtol=1e-5)
    np.testing.assert_allclose(scores["mean_iou"], np.mean(iou), atol=2e-3)
    model.save(tmp_path / "model.keras")
    assert load_model(tmp_path / "model.keras").processor == PROCESSOR


@pytest.mark.exhaustive
def test_fit_learns_which_half_is_bright():
    keras.utils.set_random_seed(0)
    backbone = models.SegFormer(SIZE, image_size=(15, 18), stochastic_depth=0.0)
    model = tasks.SemanticSegmenter(backbone, 2, hidden_dim=8, dropout=0.0)
    rng = np.random.default_rng(0)
    labels = np.zeros((16, 15, 18), "int32")
    for label, edge in zip(labels, rng.integers(4, 14, 16), strict=True):
        label[:, edge:] = 1
    pixels = labels[..., None] + rng.normal(0, 0.1, (16, 15, 18, 3))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=255)
    model.compile(keras.optimizers.Adam(1e-2), loss=loss, jit_compile=False)
    history = model.fit(pixels, labels, epochs=20, batch_size=8, verbose=0).history["loss"]
    assert history[-1] < 0.4 * history[0]


def test_targets_are_the_nearest_classes():
    mask = np.random.default_rng(0).integers(0, 4, (7, 9)).astype("uint8")
    (target,) = vision.mask_targets([Image.fromarray(mask)], (3, 5))
    rows, columns = (np.floor((np.arange(new) + 0.5) * old / new).astype(int) for new, old in ((3, 7), (5, 9)))
    np.testing.assert_array_equal(target, mask[rows][:, columns])
    (reduced,) = vision.mask_targets([mask], (7, 9), reduce_labels=True)
    np.testing.assert_array_equal(reduced, np.where(mask == 0, 255, mask.astype(int) - 1))


def test_what_does_not_fit_is_refused(model):
    vit = models.ViT(models.Size(1, 8, 2, 16), 4, 8)
    with pytest.raises(ValueError, match="no feature maps"):
        tasks.SemanticSegmenter(vit, 3)
    with pytest.raises(ValueError, match="hidden_dim"):
        tasks.SemanticSegmenter(models.SegFormer(SIZE), 3, hidden_dim=0)
    with pytest.raises(ValueError, match="no logits"):
        tasks.with_masks(vit)
    with pytest.raises(ValueError, match="no processor"):
        tasks.SemanticSegmenter(models.SegFormer(SIZE), 3).segment(pictures())
    with pytest.raises(ValueError, match="one length"):
        models.SegFormer(SIZE._replace(strides=(2,)))
    with pytest.raises(ValueError, match="divide the width"):
        models.SegFormer(SIZE._replace(num_heads=(3, 3)))
    with pytest.raises(ValueError, match="smaller than reduction_ratio=2"):
        models.SegFormer(SIZE, image_size=(20, 3))
    with pytest.raises(ValueError, match="integers from 0 to 255"):
        vision.mask_targets([np.full((2, 2), 256)], (2, 2))
