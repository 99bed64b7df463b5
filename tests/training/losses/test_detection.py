"""Assignment, the loss of sets of objects, and average precision."""

import itertools

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer import models, tasks, vision
from keras_transformer.training import DetectionLoss, DetectionMetrics, assign, average_precision

FIGURES = [
    "ap",
    "ap_50",
    "ap_75",
    "ap_small",
    "ap_medium",
    "ap_large",
    "ar_1",
    "ar_10",
    "ar_100",
    "ar_small",
    "ar_medium",
    "ar_large",
]


def cheapest(cost):
    """By trying all assignments."""
    orders = itertools.permutations(range(cost.shape[1]), len(cost))
    return min(sum(row[column] for row, column in zip(cost, order, strict=True)) for order in orders)


@pytest.mark.parametrize("levels", [None, 3], ids=["any", "ties"])
@pytest.mark.parametrize("rows, columns", [(1, 1), (3, 6), (5, 5)])
def test_assignments_are_the_cheapest(rows, columns, levels):
    rng = np.random.default_rng(rows)
    shape = (6, rows, columns)
    cost = (rng.normal(size=shape) * 10 if levels is None else rng.integers(0, levels, shape)).astype("float32")
    valid = rng.random((6, rows)) < 0.8
    found = ops.convert_to_numpy(assign(cost, valid))
    for each, chosen, real in zip(cost, found, valid, strict=True):
        assert (chosen[~real] == -1).all()
        chosen = chosen[real]
        assert len(set(chosen)) == len(chosen)
        total = each[np.flatnonzero(real), chosen].sum()
        np.testing.assert_allclose(total, cheapest(each[real]) if real.any() else 0, atol=1e-4)


@pytest.mark.exhaustive
def test_many_rows_are_assigned_as_in_scipy():
    optimize = pytest.importorskip("scipy.optimize")
    rng = np.random.default_rng(0)
    # All rows want the same columns: long augmenting paths.
    cost = (rng.normal(size=(2, 1, 40)) + 0.01 * rng.normal(size=(2, 25, 40))).astype("float32")
    found = ops.convert_to_numpy(assign(cost, np.ones((2, 25), bool)))
    for each, chosen in zip(cost, found, strict=True):
        assert each[np.arange(25), chosen].sum() <= each[optimize.linear_sum_assignment(each)].sum() + 1e-5


def test_costs_that_are_no_numbers_end():
    cost = np.full((1, 2, 3), np.nan, "float32")
    cost[0, 0, 1] = 1.0
    found = ops.convert_to_numpy(assign(cost, np.ones((1, 2), bool)))[0]
    assert found[0] == 1
    assert found[1] in (0, 2)


def batch(seed=0, objects=3, queries=5, classes=4):
    rng = np.random.default_rng(seed)
    truth = {
        "labels": rng.integers(0, classes, (2, objects)).astype("int32"),
        "boxes": rng.uniform(0.1, 0.6, (2, objects, 4)).astype("float32"),
    }
    truth["labels"][1, 1] = -1
    guess = {
        "logits": rng.normal(size=(2, queries, classes + 1)).astype("float32"),
        "boxes": rng.uniform(0.1, 0.6, (2, queries, 4)).astype("float32"),
    }
    return truth, guess


def corners(box):
    x, y, w, h = box
    return [x - w / 2, y - h / 2, x + w / 2, y + h / 2]


def overlap(a, b):
    a, b = corners(a), corners(b)
    inside = max(0, min(a[2], b[2]) - max(a[0], b[0])) * max(0, min(a[3], b[3]) - max(a[1], b[1]))
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - inside
    hull = (max(a[2], b[2]) - min(a[0], b[0])) * (max(a[3], b[3]) - min(a[1], b[1]))
    return inside / union - (hull - union) / hull


def reference(truth, guess, a=1.0, b=5.0, g=2.0, no_object=0.1, weights=(1.0, 1.0)):
    """Equations 1 and 2 of arXiv 2005.12872, all assignments tried."""
    class_sum = class_weights = box_sum = count = 0.0
    for labels, boxes, logits, found, weight in zip(
        truth["labels"], truth["boxes"], guess["logits"], guess["boxes"], weights, strict=True
    ):
        logits = logits.astype("float64")
        p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        real = np.flatnonzero(labels >= 0)

        def box_loss(m, q, boxes=boxes, found=found):
            return b * np.abs(boxes[m] - found[q]).sum() + g * (1 - overlap(boxes[m], found[q]))

        def cost(order, real=real, p=p, labels=labels, box_loss=box_loss):
            return sum(box_loss(m, q) - a * p[q, labels[m]] for m, q in zip(real, order, strict=True))

        order = min(itertools.permutations(range(len(logits)), len(real)), key=cost)
        classes = np.full(len(logits), logits.shape[-1] - 1)
        classes[list(order)] = labels[real]
        w = np.where(classes < logits.shape[-1] - 1, 1.0, no_object) * weight
        class_sum -= (w * np.log(p[np.arange(len(p)), classes])).sum()
        class_weights += w.sum()
        box_sum += weight * sum(box_loss(m, q) for m, q in zip(real, order, strict=True))
        count += weight * len(real)
    return a * class_sum / class_weights + box_sum / max(count, 1)


@pytest.mark.parametrize(
    "options",
    [{}, {"a": 0.7, "b": 3.0, "g": 1.5, "no_object": 0.3}, {"weights": (0.5, 2.0)}],
    ids=["default", "weights", "sample_weight"],
)
def test_the_loss_is_that_of_the_paper(options):
    truth, guess = batch()
    names = {"a": "class_weight", "b": "box_weight", "g": "overlap_weight", "no_object": "no_object_weight"}
    loss = DetectionLoss(**{names[key]: value for key, value in options.items() if key in names})
    weights = options.get("weights")
    found = float(loss(truth, guess, None if weights is None else np.array(weights)))
    np.testing.assert_allclose(found, reference(truth, guess, **options), rtol=2e-6)
    assert DetectionLoss.from_config(loss.get_config()).get_config() == loss.get_config()


def test_blocks_add_losses_with_assignments_of_their_own():
    truth, guess = batch()
    others = [batch(seed)[1] for seed in (5, 6)]
    stacked = {f"auxiliary_{name}": np.stack([each[name] for each in others], 1) for name in guess}
    expected = sum(reference(truth, each) for each in (guess, *others))
    np.testing.assert_allclose(float(DetectionLoss()(truth, {**guess, **stacked})), expected, rtol=2e-6)


def test_images_without_objects_and_too_many_objects():
    truth, guess = batch()
    truth["labels"][:] = -1
    log_p = guess["logits"][..., -1] - np.log(np.exp(guess["logits"]).sum(-1))
    np.testing.assert_allclose(float(DetectionLoss()(truth, guess)), -log_p.mean(), rtol=1e-5)
    truth, guess = batch(objects=6)
    with pytest.raises(ValueError, match="5 queries, too few for the 6 rows"):
        DetectionLoss()(truth, guess)
    with pytest.raises(ValueError, match="no_object_weight"):
        DetectionLoss(no_object_weight=0.0)


def detector(**options):
    keras.utils.set_random_seed(0)
    backbone = models.YOLOS(models.Size(2, 16, 2, 24), patch_size=4, image_size=8, num_detection_tokens=4)
    model = tasks.ObjectDetector(backbone, num_classes=3, **options)
    model.processor = vision.ImageProcessor(size=(8, 8), mean=0.5, std=0.5)
    return model


@pytest.mark.exhaustive
def test_it_trains_in_a_compiled_step_and_is_saved_with_its_loss(tmp_path):
    from keras_transformer import load_model

    model = detector(auxiliary=True)
    images = np.random.default_rng(0).integers(0, 256, (4, 8, 8, 3)).astype("uint8")
    boxes, labels = [[[1, 1, 5, 4]], [[2, 3, 7, 8], [0, 0, 3, 3]], [], [[4, 0, 8, 4]]], [[0], [1, 2], [], [2]]
    data = model.processor.dataset(images, vision.box_targets(boxes, labels, (8, 8)), batch_size=4)
    model.compile(keras.optimizers.Adam(1e-2), loss=DetectionLoss())
    metrics = DetectionMetrics(images, boxes, labels, every=30)
    history = model.fit(data, epochs=30, verbose=0, callbacks=[metrics]).history
    assert history["loss"][-1] < 0.5 * history["loss"][0]
    assert 0 <= history["val_ap_50"][0] <= 1
    model.save(tmp_path / "detector.keras")
    again = load_model(tmp_path / "detector.keras")
    assert again.processor == model.processor
    np.testing.assert_allclose(again.evaluate(data, verbose=0), model.evaluate(data, verbose=0), rtol=1e-5)


def test_average_precision_by_hand():
    truth = [[0, 0, 10, 10]], [[20, 20, 30, 30]]
    # Right at 0.9, wrong at 0.8, right at 0.7: precision 1 up to recall 1/2, then 2/3.
    found = [([[0, 0, 10, 10], [50, 50, 60, 60]], [1, 1], [0.9, 0.8]), ([[20, 20, 30, 30]], [1], [0.7])]
    scores = average_precision(found, truth, [[1], [1]])
    np.testing.assert_allclose(scores["ap"], (51 + 50 * 2 / 3) / 101)
    assert scores["ar_1"] == scores["ar_100"] == 1
    assert scores["ap_small"] == scores["ap"]
    assert np.isnan(scores["ap_large"])
    with pytest.raises(ValueError, match="same images"):
        average_precision(found, truth[:1], [[1]])


def random_objects(rng, number):
    corner, side = rng.uniform(0, 150, (number, 2)), rng.uniform(5, 200, (number, 2))
    return np.concatenate([corner, corner + side], 1)


def random_images(seed):
    rng = np.random.default_rng(seed)
    for _ in range(4):
        boxes = random_objects(rng, int(rng.integers(1, 8)))
        labels, crowds = rng.integers(0, 3, len(boxes)), rng.random(len(boxes)) < 0.15
        origin = rng.integers(0, len(boxes), 25)
        found = boxes[origin] + rng.normal(0, 8, (25, 4))
        found = np.concatenate([np.minimum(found[:, :2], found[:, 2:]), np.maximum(found[:, :2], found[:, 2:])], 1)
        classes = np.where(rng.random(25) < 0.7, labels[origin], rng.integers(0, 3, 25))
        yield (found, classes, rng.random(25).round(1)), boxes, labels, crowds


def coco_figures(found, boxes, labels, crowds):
    coco, evaluation = pytest.importorskip("pycocotools.coco"), pytest.importorskip("pycocotools.cocoeval")
    truth, annotations = coco.COCO(), []
    for image, rows in enumerate(zip(boxes, labels, crowds, strict=True)):
        for box, label, crowd in zip(*rows, strict=True):
            size = box[2:] - box[:2]
            annotations.append(
                {"id": len(annotations) + 1, "image_id": image, "category_id": int(label), "bbox": [*box[:2], *size]}
                | {"area": size.prod(), "iscrowd": int(crowd)}
            )
    images, classes = [{"id": index} for index in range(len(boxes))], [{"id": index} for index in range(3)]
    truth.dataset = {"images": images, "annotations": annotations, "categories": classes}
    truth.createIndex()
    rows = [
        {"image_id": image, "category_id": int(label), "bbox": [*box[:2], *(box[2:] - box[:2])], "score": score}
        for image, each in enumerate(found)
        for box, label, score in zip(*each, strict=True)
    ]
    run = evaluation.COCOeval(truth, truth.loadRes(rows), "bbox")
    run.evaluate(), run.accumulate(), run.summarize()
    return np.where(run.stats == -1, np.nan, run.stats)


@pytest.mark.parametrize("seed", range(4))
def test_average_precision_is_that_of_pycocotools(seed, capsys):
    found, boxes, labels, crowds = zip(*random_images(seed), strict=True)
    scores = average_precision(found, boxes, labels, crowds)
    np.testing.assert_allclose([scores[name] for name in FIGURES], coco_figures(found, boxes, labels, crowds))
