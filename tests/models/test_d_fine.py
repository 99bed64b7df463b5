"""D-FINE: bins, distributions of edges, the gates, and training with the losses of all blocks."""

import keras
import numpy as np
import pytest

from keras_transformer import models, tasks, vision
from keras_transformer.blocks import GatedResidual
from keras_transformer.training import DetectionLoss
from laws import randomize

STAGES = ((4, 6, 1, 2, 3, False, None), (4, 6, 1, 2), (4, 8, 2, 1, 5, True), (4, 8, 1, 1))
HGNET = models.HGNetV2Size((4, 6), tuple(models.HGNetV2Stage(*stage) for stage in STAGES))
SIZE = models.DFINESize(12, 2, 3, 14, models.HybridEncoderSize(8, 1, 2, 10, expansion=0.75, depth=1))


def softmax(x):
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def test_bins_are_those_of_the_paper():
    values, curvature = (np.asarray(each) for each in vision.DistributionBins(8, 3.0, 0.7)(np.zeros(1)))
    bound, step = 0.7 * 3.0, (0.7 * 3.0 + 1) ** (2 / 6)
    half = [step - 1, step**2 - 1, step**3 - 1, 2 * bound]
    np.testing.assert_allclose(values, [*(-each for each in half[::-1]), 0, *half], rtol=1e-6)
    np.testing.assert_allclose(curvature, [3.0])
    # The last inner bin is the bound.
    np.testing.assert_allclose(values[-2], bound, rtol=1e-6)
    with pytest.raises(ValueError, match="even number"):
        vision.DistributionBins(5)


def test_boxes_and_quality_are_the_formula():
    rng = np.random.default_rng(0)
    x, before = rng.normal(size=(2, 3, 5)).astype("float32"), rng.normal(size=(2, 3, 4 * 7)).astype("float32")
    boxes = rng.uniform(0.2, 0.6, (2, 3, 4)).astype("float32")
    values, curvature = np.linspace(-2, 3, 7).astype("float32"), np.array([2.5], "float32")
    layer = vision.DistributionRefinement(6, top_k=2, quality_dim=4, num_quality_layers=2)
    layer(x, boxes, values, curvature, before)
    randomize(layer)
    weights = {weight.path.split("/", 1)[1]: np.asarray(weight) for weight in layer.weights}

    def dense(name, x):
        return x @ weights[f"{name}/kernel"] + weights[f"{name}/bias"]

    logits = dense("distribution", np.maximum(dense("hidden_1", np.maximum(dense("hidden_0", x), 0)), 0)) + before
    likely = softmax(logits.reshape(2, 3, 4, 7))
    left, top, right, bottom = np.moveaxis((likely * values).sum(-1), -1, 0)
    cx, cy, w, h = np.moveaxis(boxes, -1, 0)
    corners = [cx - (0.5 * 2.5 + left) * w / 2.5, cy - (0.5 * 2.5 + top) * h / 2.5]
    corners += [cx + (0.5 * 2.5 + right) * w / 2.5, cy + (0.5 * 2.5 + bottom) * h / 2.5]
    best = -np.sort(-likely, axis=-1)[..., :2]
    seen = np.concatenate([best, best.mean(-1, keepdims=True)], -1).reshape(2, 3, 12)
    quality = dense("quality_1", np.maximum(dense("quality_0", seen), 0))
    found = layer(x, boxes, values, curvature, before)
    for ours, theirs in zip(
        (vision.convert_boxes(found[0], "cxcywh", "xyxy"), *found[1:]),
        (np.stack(corners, -1), logits, quality),
        strict=True,
    ):
        np.testing.assert_allclose(np.asarray(ours), theirs, atol=2e-6)


def test_gates_weigh_both_terms():
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=(2, 3, 4)).astype("float32") for _ in range(2))
    residual = GatedResidual(keras.layers.LayerNormalization(epsilon=0.1))
    residual.build((None, None, 4))
    randomize(residual)
    kernel, bias = residual._gate.get_weights()
    gates = 1 / (1 + np.exp(-(np.concatenate([x, y], -1) @ kernel + bias)))
    mixed = gates[..., :4] * x + gates[..., 4:] * y
    gamma, beta = residual.norms["norm"].get_weights()
    expected = (mixed - mixed.mean(-1, keepdims=True)) / np.sqrt(mixed.var(-1, keepdims=True) + 0.1) * gamma + beta
    np.testing.assert_allclose(np.asarray(residual.post(x, y)), expected, atol=2e-6)


@pytest.mark.exhaustive
def test_a_step_changes_every_weight():
    keras.utils.set_random_seed(0)
    backbone = models.HGNetV2(HGNET, (64, 32), learnable_affine=True, frozen_norm=True)
    refinement = vision.DistributionRefinement(6, quality_dim=5)
    backbone = models.DFINE(SIZE, backbone=backbone, num_classes=3, num_queries=6, refinement=refinement)
    model = tasks.ObjectDetector(backbone, 3, num_class_layers=1, auxiliary=True)
    # The block before the last, the first boxes, and the selection.
    assert model.output["auxiliary_logits"].shape == (None, 3, 6, 3)
    for layer in model.layers:
        if layer.name.startswith(("refined_boxes", "decoder_block", "first_boxes")):  # Some kernels are zeros at first.
            randomize(layer)
    model.compile(keras.optimizers.SGD(0.1), loss=DetectionLoss(classification="varifocal"), jit_compile=False)
    images = np.random.default_rng(0).normal(size=(3, 64, 32, 3)).astype("float32")
    targets = vision.box_targets([[[4, 4, 20, 20]], [[1, 2, 30, 50], [2, 2, 9, 9]], []], [[0], [1, 2], []], (64, 32))
    before = {weight.path: np.asarray(weight) for weight in model.trainable_weights}
    model.fit(images, targets, batch_size=3, verbose=0)
    after = {weight.path: np.asarray(weight) for weight in model.trainable_weights}
    same = [path for path in before if np.array_equal(before[path], after[path])]
    assert [path for path in same if "key/bias" not in path] == []
    assert not any("distribution_bins" in path for path in before)
