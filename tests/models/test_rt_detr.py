"""RT-DETR: selected queries, refined boxes, the loss of independent classes, and what is detected."""

import pathlib

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file

from keras_transformer import checkpoints, load_model, models, tasks, vision
from keras_transformer.training import DetectionLoss
from laws import randomize

FOLDER = pathlib.Path(__file__).parents[1] / "data" / "checkpoints" / "rt_detr-ObjectDetection"
RESNET = models.ResNetSize((8, 6, 12, 8), (1, 1, 1, 1), is_bottleneck=False, stem_dim=4)
SIZE = models.RTDETRSize(12, 2, 3, 14, models.HybridEncoderSize(8, 1, 2, 10, expansion=0.5, depth=1))


def backbone(image_size=(64, 32), **options):
    resnet = models.ResNet(RESNET, image_size, variant="d", frozen_norm=True)
    return models.RTDETR(SIZE, backbone=resnet, num_classes=3, num_queries=6, **options)


def test_the_loss_is_that_of_transformers():
    """Of all blocks and of the selection of queries, with the class heads that only training uses."""
    expected, tensors = np.load(FOLDER / "expected.npz"), load_file(FOLDER / "model.safetensors")

    def task(backbone):
        return tasks.ObjectDetector(backbone, 5, num_class_layers=1, auxiliary=True)

    model = checkpoints.from_huggingface(FOLDER, task=task, verbose=0)
    for index in range(3):
        name, head = (
            f"model.decoder.class_embed.{index}",
            model.get_layer("logits" if index == 2 else f"logits_{index}"),
        )
        head.set_weights([tensors[f"{name}.weight"].T, tensors[f"{name}.bias"]])
    outputs = model(expected["input/images"])
    assert outputs["auxiliary_boxes"].shape == (3, 3, 7, 4)
    truth = {"labels": expected["labels"], "boxes": expected["true_boxes"]}
    found = float(DetectionLoss(classification="varifocal")(truth, outputs))
    np.testing.assert_allclose(found, float(expected["loss"]), rtol=2e-6)
    weighted = DetectionLoss(2.0, 3.0, 0.5, classification="varifocal")
    assert DetectionLoss.from_config(weighted.get_config()).get_config() == weighted.get_config()
    # The second image has no object: its weight counts, its box does not.
    other = DetectionLoss(classification="varifocal")(truth, outputs, np.array([1.0, 0.0, 1.0]))
    assert 0 < found - float(other) < found


@pytest.mark.exhaustive
def test_a_step_changes_every_weight(tmp_path):
    keras.utils.set_random_seed(0)
    model = tasks.ObjectDetector(backbone(), 3, num_class_layers=1, auxiliary=True)
    for layer in model.layers:
        if layer.name.startswith(("refined_boxes", "decoder_block")):  # Some of their kernels are zeros at first.
            randomize(layer)
    model.compile(keras.optimizers.SGD(0.1), loss=DetectionLoss(classification="varifocal"), jit_compile=False)
    images = np.random.default_rng(0).normal(size=(4, 64, 32, 3)).astype("float32")
    targets = vision.box_targets(
        [[[4, 4, 20, 20]], [[1, 2, 30, 50], [2, 2, 9, 9]], [], [[3, 3, 8, 8]]], [[0], [1, 2], [], [1]], (64, 32)
    )
    before = {weight.path: np.asarray(weight) for weight in model.trainable_weights}
    model.fit(images, targets, batch_size=4, verbose=0)
    after = {weight.path: np.asarray(weight) for weight in model.trainable_weights}
    same = [path for path in before if np.array_equal(before[path], after[path])]
    # Frozen norms are not among them. Biases of keys change nothing.
    assert [path for path in same if "key/bias" not in path] == []
    model.save(tmp_path / "detector.keras")
    again = load_model(tmp_path / "detector.keras")
    np.testing.assert_allclose(again.predict(images, verbose=0)["boxes"], model.predict(images, verbose=0)["boxes"])


@pytest.mark.exhaustive
def test_an_object_may_have_several_classes():
    keras.utils.set_random_seed(1)
    model = tasks.ObjectDetector(backbone(), 3, num_class_layers=1)
    randomize(model.get_layer("logits"))
    model.processor = vision.ImageProcessor(size=(64, 32))
    image = np.random.default_rng(0).integers(0, 256, (80, 70, 3)).astype("uint8")
    outputs = {name: np.asarray(value)[0] for name, value in model(model.processor(image)).items()}
    scores = 1 / (1 + np.exp(-outputs["logits"]))
    best = np.argsort(-scores.reshape(-1))[:6]
    (found,) = model.detect(image, threshold=0.0)
    np.testing.assert_allclose(found.scores, scores.reshape(-1)[best], rtol=1e-5)
    np.testing.assert_array_equal(found.labels, best % 3)
    x, y, width, height = (outputs["boxes"][best // 3] * [70, 80, 70, 80]).T
    corners = np.stack([x - width / 2, y - height / 2, x + width / 2, y + height / 2], -1)
    np.testing.assert_allclose(found.boxes, corners, atol=1e-3)
    # In files, the surest class of each query.
    decoded = tasks.with_detections(model)(model.processor(image))
    np.testing.assert_array_equal(np.asarray(decoded["labels"])[0], scores.argmax(-1))
    np.testing.assert_allclose(np.asarray(decoded["scores"])[0], scores.max(-1), rtol=1e-5)


def test_queries_are_the_surest_pixels_inside_the_margin():
    rng = np.random.default_rng(0)
    # 60 columns: the anchors of the first and the last are closer than 0.01 to the edge.
    maps = [rng.normal(size=(2, *size, 8)).astype("float32") for size in ((2, 60), (1, 30))]
    layer = vision.QuerySelection(num_classes=3, num_queries=9, layer_norm_epsilon=0.1)
    layer(maps)
    randomize(layer)
    weights = {weight.path.split("/", 1)[1]: np.asarray(weight) for weight in layer.weights}

    def dense(name, x):
        return x @ weights[f"{name}/kernel"] + weights[f"{name}/bias"]

    pixels, anchors = [], []
    for level, grid in enumerate(maps):
        rows, columns = grid.shape[1:3]
        for i, j in np.ndindex(rows, columns):
            center = (j + 0.5) / columns, (i + 0.5) / rows
            inside = all(0.01 < each < 0.99 for each in center)
            box = np.array([*center, 0.05 * 2**level, 0.05 * 2**level])
            pixels.append(grid[:, i, j] * inside)
            anchors.append(np.log(box / (1 - box)) if inside else np.full(4, np.inf))
    x = dense("projection", np.stack(pixels, 1))
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 0.1)
    x = x * weights["norm/gamma"] + weights["norm/beta"]
    scores = dense("scores", x)
    offsets = dense("offsets", np.maximum(dense("hidden_1", np.maximum(dense("hidden_0", x), 0)), 0))
    boxes = 1 / (1 + np.exp(-(offsets + np.stack(anchors))))
    chosen = np.argsort(-scores.max(-1), axis=1, kind="stable")[:, :9, None]
    found = layer(maps)
    for ours, theirs in zip(found, (x, boxes, scores), strict=True):
        np.testing.assert_allclose(np.asarray(ours), np.take_along_axis(theirs, chosen, 1), atol=2e-6)


def test_images_of_any_size():
    """Sides that are no multiples of 32 crop what is enlarged; those of a fixed size give the same."""
    keras.utils.set_random_seed(0)
    fixed = tasks.ObjectDetector(backbone((75, 51)), 3, num_class_layers=1)
    open_size = models.with_image_size(fixed, None)
    for size in ((75, 51), (64, 96)):
        images = np.random.default_rng(0).normal(size=(2, *size, 3)).astype("float32")
        wanted, found = models.with_image_size(fixed, size)(images), open_size(images)
        np.testing.assert_allclose(np.asarray(found["boxes"]), np.asarray(wanted["boxes"]), atol=1e-5)
    enlarged = vision.UpsampleLike()(np.arange(6.0).reshape(1, 2, 3, 1), np.zeros((1, 3, 5, 2)))
    expected = np.repeat(np.repeat(np.arange(6.0).reshape(2, 3), 2, 0), 2, 1)[:3, :5]
    np.testing.assert_array_equal(np.asarray(enlarged)[0, :, :, 0], expected)


def test_positions_count_rows_and_columns():
    found = np.asarray(vision.SinusoidalGrid(8, max_wavelength=50.0)(np.zeros((5, 3, 4, 2))))[0]
    for row, column in ((0, 0), (2, 3), (1, 2)):
        rates = np.array([1.0, 50.0**-0.5])
        expected = np.concatenate([f(each * rates) for each in (row, column) for f in (np.sin, np.cos)])
        np.testing.assert_allclose(found[row * 4 + column], expected, atol=1e-6)


def test_what_does_not_fit_is_refused():
    model = backbone()
    with pytest.raises(ValueError, match="selects queries for 3 classes. Received: num_classes=4"):
        tasks.ObjectDetector(model, 4, auxiliary=True)
    with pytest.raises(ValueError, match="num_box_layers=2"):
        tasks.ObjectDetector(model, 3, num_box_layers=2)
    detector = tasks.ObjectDetector(model, 3)
    detector.compile("sgd", loss=DetectionLoss())
    targets = vision.box_targets([[[4, 4, 20, 20]]], [[0]], (64, 32))
    with pytest.raises(ValueError, match="classification='varifocal'"):
        detector.fit(np.zeros((1, 64, 32, 3)), targets, verbose=0)
    with pytest.raises(ValueError, match="three feature maps or more"):
        models.RTDETR(SIZE, backbone=models.ResNet(models.ResNetSize((8, 8), (1, 1), stem_dim=4), 32))
    with pytest.raises(ValueError, match="300 queries are more than the 42 pixels"):
        models.RTDETR(SIZE, backbone=models.ResNet(RESNET, (64, 32), variant="d"))
    with pytest.raises(ValueError, match="variant"):
        models.ResNet(RESNET, 32, variant="c")
    with pytest.raises(ValueError, match="varifocal"):
        DetectionLoss(classification="focal")
    with pytest.raises(ValueError, match="multiple of 4"):
        vision.SinusoidalGrid(6)
