"""Detectors: what they return for images of any size, and what they refuse."""

import keras
import numpy as np
import pytest

from keras_transformer import models, tasks, vision

SIZE = models.Size(num_layers=2, hidden_dim=16, num_heads=2, intermediate_dim=24)
PROCESSOR = vision.ImageProcessor(
    size={"shortest_edge": 12, "longest_edge": 20}, mean=[0.5] * 3, std=[0.2] * 3, multiple_of=4, pad=True
)


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(1)
    backbone = models.YOLOS(SIZE, 4, grid_size=(3, 4), num_detection_tokens=6, positions_in_blocks=True)
    model = tasks.ObjectDetector(backbone, num_classes=3)
    rng = np.random.default_rng(0)
    model.set_weights([weight + rng.normal(0, 0.3, weight.shape) for weight in model.get_weights()])
    model.processor = PROCESSOR
    return model


def pictures():
    rng = np.random.default_rng(0)
    return [rng.integers(0, 256, (*size, 3)).astype("uint8") for size in ((30, 40), (50, 21), (60, 80))]


def test_a_batch_gives_for_each_image_what_it_gives_alone(model):
    images = pictures()
    together = model.detect(images, threshold=0.0)
    for image, found in zip(images, together, strict=True):
        (alone,) = model.detect(image, threshold=0.0)
        np.testing.assert_allclose(found.boxes, alone.boxes, atol=1e-3)
        np.testing.assert_array_equal(found.labels, alone.labels)
    assert (np.diff(together[0].scores) <= 0).all()
    assert together[0].scores.shape == (6,)


def test_boxes_are_pixels_and_scores_probabilities(model):
    image = pictures()[1]
    outputs = {name: np.asarray(value)[0] for name, value in model(PROCESSOR(image)).items()}
    likely = np.exp(outputs["logits"]) / np.exp(outputs["logits"]).sum(-1, keepdims=True)
    query = int(likely[:, :3].max(-1).argmax())
    x, y, width, height = outputs["boxes"][query] * [21, 50, 21, 50]
    (found,) = model.detect([image], threshold=0.0)
    np.testing.assert_allclose(
        found.boxes[0], [x - width / 2, y - height / 2, x + width / 2, y + height / 2], atol=1e-4
    )
    assert found.labels[0] == likely[query, :3].argmax()
    np.testing.assert_allclose(found.scores[0], likely[query, :3].max(), rtol=1e-5)
    between = float(found.scores[:2].mean())
    assert len(model.detect([image], threshold=between)[0].labels) == 1
    outputs = tasks.with_detections(model)(PROCESSOR(image))
    assert int(outputs["labels"][0, query]) == found.labels[0]
    np.testing.assert_allclose(np.asarray(outputs["boxes"])[0, query] * [21, 50, 21, 50], found.boxes[0], atol=1e-4)


def test_a_model_of_a_fixed_size_sees_that_size(model):
    fixed = models.with_image_size(model, (16, 8))
    assert isinstance(fixed, tasks.DetectionModel)
    assert fixed.processor == PROCESSOR
    (found,) = fixed.detect(pictures()[0], threshold=0.0)
    exact = vision.ImageProcessor(**{**PROCESSOR.get_config(), "size": (16, 8)})
    logits = np.asarray(fixed(exact(pictures()[0]))["logits"])[0]
    scores = (np.exp(logits) / np.exp(logits).sum(-1, keepdims=True))[:, :3].max(-1)
    np.testing.assert_allclose(found.scores, np.sort(scores)[::-1], rtol=1e-5)
    # The table is resized by numpy here, and in the graph for images of any size.
    pixels = exact(pictures()[0])
    for name, value in model(pixels).items():
        np.testing.assert_allclose(np.asarray(value), np.asarray(fixed(pixels)[name]), atol=2e-5)


def test_auxiliary_outputs_are_the_heads_on_every_block(model):
    both = tasks.ObjectDetector(models.YOLOS(SIZE, 4, 8, num_detection_tokens=6), num_classes=3, auxiliary=True)
    assert both.output["auxiliary_boxes"].shape == (None, 1, 6, 4)
    plain = tasks.DetectionModel(both.input, {name: both.output[name] for name in ("logits", "boxes")})
    assert set(plain.output) == set(tasks.ObjectDetector(models.YOLOS(SIZE, 4, 8, num_detection_tokens=6), 3).output)
    # The only block before the last: its tokens, the norm, the heads.
    backbone = keras.Model(both.input, both.get_layer("final_norm")(both.get_layer("encoder_block_0").output))
    pixels = np.random.default_rng(0).normal(size=(2, 8, 8, 3)).astype("float32")
    x = backbone(pixels)[:, -6:]
    for index in range(2):
        x = both.get_layer(f"class_hidden_{index}")(x)
    found = both(pixels)
    np.testing.assert_allclose(
        np.asarray(found["auxiliary_logits"])[:, 0], np.asarray(both.get_layer("logits")(x)), atol=1e-6
    )
    np.testing.assert_allclose(np.asarray(plain(pixels)["logits"]), np.asarray(found["logits"]), atol=1e-6)


def test_what_does_not_fit_is_refused(model):
    backbone = models.YOLOS(SIZE._replace(num_layers=1), 4, 8, num_detection_tokens=2)
    with pytest.raises(ValueError, match="at least two blocks"):
        tasks.ObjectDetector(backbone, 2, auxiliary=True)
    with pytest.raises(ValueError, match="num_class_layers"):
        tasks.ObjectDetector(backbone, 2, num_class_layers=0)
    with pytest.raises(ValueError, match="no processor"):
        tasks.ObjectDetector(backbone, 2).detect(pictures())
    with pytest.raises(vision.ImageError, match="Image 1 must be of dtype uint8"):
        model.detect([pictures()[0], np.zeros((4, 4, 3))])
    with pytest.raises(ValueError, match="no outputs 'logits'"):
        tasks.with_detections(backbone)
    with pytest.raises(ValueError, match="grid_size"):
        vision.GridPositions(4)(np.zeros((1, 5, 4)), keras.Input((None, None, 3)))
