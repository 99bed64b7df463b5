"""Prompted segmentation: parity with transformers of the parts, prompts together and alone, pixels of images."""

import pathlib

import keras
import numpy as np
import pytest
from PIL import Image

from keras_transformer import checkpoints, load_model, models, tasks, vision

DATA = pathlib.Path(__file__).parents[1] / "data" / "checkpoints" / "sam-Model"
PROMPTS = ("prompt_points", "prompt_labels", "prompt_has_mask")


@pytest.fixture(scope="module")
def checkpoint():
    with np.load(DATA / "expected.npz") as arrays:
        return checkpoints.from_huggingface(DATA, verbose=0), dict(arrays)


@pytest.fixture(scope="module")
def model():
    """Of pictures of 24 x 16 pixels, with weights large enough that the answer depends on the prompt."""
    keras.utils.set_random_seed(1)
    backbone = models.SAM(models.SAMSize(2, 8, 2, 16, (1,)), 4, (24, 16), output_dim=16, window_size=3)
    model = tasks.PromptedSegmenter(backbone, 2, tasks.MaskDecoderSize(2, 2, 24, score_dim=8))
    rng = np.random.default_rng(0)
    model.set_weights([weight + rng.normal(0, 0.2, weight.shape) for weight in model.get_weights()])
    model.processor = vision.ImageProcessor(size={"longest_edge": 24}, mean=0.5, std=0.3, pad=(24, 16))
    return model


def picture(size=(60, 33)):
    return np.random.default_rng(0).integers(0, 256, (*size, 3)).astype("uint8")


def close(found, wanted, share=3e-6):
    wanted = np.asarray(wanted)
    # 1.2e-6 on TensorFlow; JAX sums in another order.
    np.testing.assert_allclose(np.asarray(found), wanted, atol=share * np.abs(wanted).max())


def test_features_are_those_of_transformers(checkpoint):
    model, arrays = checkpoint
    close(model.image_encoder(arrays["input/images"]), arrays["features"])


@pytest.mark.parametrize("case", ["points", "boxes"])
def test_prompts_without_a_mask_are_answered_as_by_transformers(checkpoint, case):
    model, arrays = checkpoint
    inputs = {name: arrays[f"{case}/{name}"] for name in PROMPTS}
    inputs |= {"features": arrays["features"], "prompt_masks": arrays["input/prompt_masks"]}
    outputs = model.prompt_decoder(inputs)
    for name in ("masks", "scores"):
        close(outputs[name], arrays[f"{case}/{name}"])


def test_several_prompts_give_what_each_gives_alone(model):
    """With points of different numbers: padding has no influence."""
    encoded = model.encode(picture())
    points, labels = [[[3, 50], [30, 7]], [[20, 20]]], [[1, 0], [1]]
    boxes, masks = [[1, 2, 20, 50], [5, 6, 30, 40]], np.random.default_rng(1).normal(0, 5, (2, 24, 16))
    for more in ({}, {"boxes": boxes}, {"masks": masks}, {"boxes": boxes, "masks": masks}):
        together = model.segment(encoded, points, labels, **more)
        assert together.masks.shape == (2, 2, 60, 33)
        for index in range(2):
            one = {name: np.asarray(value)[index] for name, value in more.items()}
            alone = model.segment(encoded, points[index], labels[index], **one)
            # Both round, and products of another number of rows may add in another order.
            close(together.logits[index], alone.logits[0], share=2 * 3e-6)
            close(together.scores[index], alone.scores[0], share=2 * 3e-6)
    alone = [model.segment(encoded, points[0], [1, label]).logits for label in (0, 1)]
    assert np.abs(alone[0] - alone[1]).max() > 1e-2 * np.abs(alone[0]).max()


def test_points_are_pixels_of_the_image_and_masks_too(model):
    """The sides are rounded: 60 x 33 pixels are 24 x 13, padded to 24 x 16."""
    image, point = picture(), (11.0, 48.0)
    small = Image.fromarray(image).resize((13, 24), Image.Resampling.BILINEAR)
    pixels = np.zeros((1, 24, 16, 3), "float32")
    pixels[0, :, :13] = (np.asarray(small) / 255 - 0.5) / 0.3
    inputs = {
        "images": pixels,
        "prompt_points": np.array([[[[point[0] * 13 / 33, point[1] * 24 / 60], [0, 0]]]], "float32"),
        "prompt_labels": np.array([[[1, -1]]], "int32"),
        "prompt_masks": np.zeros((1, 1, 24, 16), "float32"),
        "prompt_has_mask": np.array([[False]]),
    }
    outputs = {name: np.asarray(value) for name, value in model(inputs).items()}
    found = model.segment(image, [point])
    close(found.logits[0], outputs["masks"][0, 0, 1:])
    close(found.scores[0], outputs["scores"][0, 0, 1:])
    (clear,) = model.segment(image, [point], multimask=False).logits
    close(clear, outputs["masks"][0, 0, :1])
    # Here the decoder's masks are as large as the padded image, whose padding is cut off.
    for logits, mask in zip(found.logits[0], found.masks[0], strict=True):
        wanted = _bilinear(_bilinear(logits[:, :13], 60).T, 33).T
        sure = np.abs(wanted) > 1e-4 * np.abs(wanted).max()
        np.testing.assert_array_equal(mask[sure], wanted[sure] > 0)
    assert found.best().shape == (1, 60, 33)
    np.testing.assert_array_equal(found.best()[0], found.masks[0, found.scores[0].argmax()])


def _bilinear(x, length):
    """Rows at half-pixel centers, edges repeated, in float64."""
    centers = np.clip((np.arange(length) + 0.5) * len(x) / length - 0.5, 0, len(x) - 1)
    low = np.minimum(np.floor(centers).astype(int), len(x) - 1)
    share = (centers - low)[:, None]
    return x[low].astype("float64") * (1 - share) + x[np.minimum(low + 1, len(x) - 1)] * share


@pytest.mark.exhaustive
def test_it_is_saved_with_its_processor_and_learns(model, tmp_path):
    model.save(tmp_path / "model.keras")
    loaded = load_model(tmp_path / "model.keras")
    first, second = (each.segment(picture(), boxes=[1, 2, 20, 50]) for each in (model, loaded))
    np.testing.assert_array_equal(first.logits, second.logits)
    inputs = vision.PromptProcessor(model.processor, (24, 16))((60, 33), boxes=[1, 2, 20, 50])
    inputs["images"] = model.processor(picture())
    target = np.zeros((1, 1, 3, 24, 16), "float32")
    target[..., 2:20, 1:8] = 1
    loss = {"masks": keras.losses.BinaryCrossentropy(from_logits=True), "scores": "mse"}
    loaded.compile("adam", loss=loss, jit_compile=False)
    targets = {"masks": target, "scores": np.ones((1, 1, 3), "float32")}
    losses = loaded.fit(inputs, targets, epochs=12, verbose=0).history["loss"]
    assert losses[-1] < 0.7 * losses[0]


def test_what_does_not_fit_is_refused(model):
    encoded = model.encode(picture())
    for wrong, message in (
        ({}, "A prompt is points, a box, a mask"),
        ({"labels": [1]}, "labels are those of points"),
        ({"points": [[1, 2]], "labels": [1, 0]}, "labels \\(N,\\)"),
        ({"points": [[1, 2]], "labels": [2]}, "must be 1"),
        ({"points": [[1, 2]], "boxes": [[1, 2, 3, 4], [1, 2, 3, 4]]}, "as many of each"),
        ({"boxes": [[1, 2, 3]]}, "boxes must be"),
        ({"masks": np.zeros((5, 5))}, "masks must be"),
    ):
        with pytest.raises(ValueError, match=message):
            model.segment(encoded, **wrong)
    with pytest.raises(ValueError, match="One image"):
        model.encode([picture(), picture()])
    backbone = models.SAM(models.SAMSize(1, 8, 2, 16, (0,)), 4, 8, output_dim=16)
    without = tasks.PromptedSegmenter(backbone, size=tasks.MaskDecoderSize(1, 2, 24))
    with pytest.raises(ValueError, match="needs a processor that makes images of 8 x 8"):
        without.segment(picture(), points=[[1, 2]])
    with pytest.raises(ValueError, match="one feature map"):
        tasks.PromptedSegmenter(models.ViT(models.Size(1, 8, 2, 16), 4, 8))
    with pytest.raises(ValueError, match="multiple of 8"):
        tasks.PromptedSegmenter(models.SAM(models.SAMSize(1, 8, 2, 16, (0,)), 4, 8, output_dim=12))
    with pytest.raises(ValueError, match="global_blocks"):
        models.SAM(models.SAMSize(1, 8, 2, 16, (1,)), 4, 8)
    with pytest.raises(ValueError, match="multiple of patch_size"):
        models.SAM(models.SAMSize(1, 8, 2, 16, (0,)), 4, 10)
