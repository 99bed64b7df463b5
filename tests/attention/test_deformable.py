"""Multi-scale deformable attention by its formula, pixel by pixel."""

import keras
import numpy as np
import pytest

from keras_transformer.attention import MultiScaleDeformableAttention, PositionedAttention
from keras_transformer.blocks import DeformableDecoderBlock
from keras_transformer.feedforward import DenseFeedForward
from laws import randomize

SIZES, POINTS, HEADS, WIDTH = ((5, 3), (2, 4)), (3, 2), 2, 6


def arrays(dtype="float64"):
    rng = np.random.default_rng(0)
    memory = [rng.normal(size=(2, *size, WIDTH)).astype(dtype) for size in SIZES]
    # Boxes at the edges as well, whose points are outside.
    boxes = np.concatenate([rng.uniform(0, 1, (2, 4, 2)), rng.uniform(0.1, 0.9, (2, 4, 2))], -1).astype(dtype)
    return rng.normal(size=(2, 4, WIDTH)).astype(dtype), memory, boxes


def pixel(grid, row, column):
    inside = 0 <= row < grid.shape[0] and 0 <= column < grid.shape[1]
    return grid[int(row), int(column)] if inside else np.zeros(grid.shape[-1])


def bilinear(grid, x, y):
    column, row = x * grid.shape[1] - 0.5, y * grid.shape[0] - 0.5
    value = 0
    for i in (np.floor(row), np.floor(row) + 1):
        for j in (np.floor(column), np.floor(column) + 1):
            value = value + (1 - abs(row - i)) * (1 - abs(column - j)) * pixel(grid, i, j)
    return value


def nearest(grid, x, y):
    row, column = (np.clip(np.trunc(a * n + 0.5), 0, n - 1) for a, n in ((y, grid.shape[0]), (x, grid.shape[1])))
    return pixel(grid, row, column)


def by_formula(layer, query, memory, boxes, sample, scale):
    weights = {weight.path.split("/", 1)[1]: np.asarray(weight) for weight in layer.weights}

    def dense(name, x):
        return x @ weights[f"{name}/kernel"] + weights[f"{name}/bias"] if f"{name}/kernel" in weights else x

    levels = np.repeat(np.arange(len(POINTS)), POINTS)
    offsets = dense("sampling_offsets", query).reshape(2, 4, HEADS, len(levels), 2)
    scores = np.exp(dense("attention_weights", query).reshape(2, 4, HEADS, len(levels)))
    scores /= scores.sum(-1, keepdims=True)
    values, context = [dense("value", each) for each in memory], np.zeros((2, 4, HEADS, WIDTH // HEADS))
    for b, q, h, p in np.ndindex(*scores.shape):
        x, y = boxes[b, q, :2] + scale * boxes[b, q, 2:] * offsets[b, q, h, p] / POINTS[levels[p]]
        grid = values[levels[p]][b].reshape(*SIZES[levels[p]], HEADS, -1)[:, :, h]
        context[b, q, h] += scores[b, q, h, p] * sample(grid, x, y)
    return dense("attention_output", context.reshape(2, 4, WIDTH))


@pytest.mark.parametrize(
    "options, sample",
    [({}, bilinear), ({"sampling": "nearest"}, nearest), ({"use_projections": False, "offset_scale": 1.3}, bilinear)],
    ids=["bilinear", "nearest", "without_projections"],
)
def test_it_is_the_formula(options, sample):
    query, memory, boxes = arrays()
    layer = MultiScaleDeformableAttention(HEADS, POINTS, 2, dtype="float64", **options)
    layer(query, memory, boxes)
    randomize(layer)
    found = np.asarray(layer(query, memory, boxes))
    expected = by_formula(layer, query, memory, boxes, sample, options.get("offset_scale", 0.5))
    np.testing.assert_allclose(found, expected, atol=1e-12)
    again = MultiScaleDeformableAttention.from_config(layer.get_config())
    again(query, memory, boxes)
    again.set_weights(layer.get_weights())
    np.testing.assert_array_equal(np.asarray(again(query, memory, boxes)), found)


def test_at_first_the_heads_look_around_the_center():
    """The value of the head in direction (1, 0): half a step to the right of the center for each point."""
    layer = MultiScaleDeformableAttention(4, 2, 1, use_projections=False)
    grid = np.broadcast_to(np.arange(16.0, dtype="float32")[None, None, :, None], (1, 3, 16, 4))
    found = np.asarray(layer(np.ones((1, 1, 4), "float32"), [grid], np.array([[[0.5, 0.5, 0.25, 0.25]]], "float32")))
    # Pixel 7.5 is the center; points 1 and 2 of 2 are 1/4 and 1/2 of the width of 4 pixels away, in opposite directions.
    np.testing.assert_allclose(found[0, 0], [9.0, 7.5, 6.0, 7.5], atol=1e-5)


def test_points_far_outside_are_zeros():
    query, memory, boxes = arrays("float32")
    layer = MultiScaleDeformableAttention(HEADS, POINTS, 2, use_projections=False)
    boxes[..., :2] += 1e30
    np.testing.assert_array_equal(np.asarray(layer(query, memory, boxes)), 0.0)


def test_recomputation_gives_the_gradient_of_positions():
    """A block that keeps only its inputs learns as one that keeps all activations."""
    tf = pytest.importorskip("tensorflow")
    if keras.backend.backend() != "tensorflow":
        pytest.skip("gradients by a tape")
    query, memory, boxes = arrays("float32")
    found = []
    for recompute in (False, True):
        cross = MultiScaleDeformableAttention(HEADS, POINTS, 2)
        block = DeformableDecoderBlock(PositionedAttention(2, 3), cross, DenseFeedForward(5), recompute=recompute)
        block(query, memory, boxes, positions=query)
        randomize(block)
        inputs = [tf.constant(each) for each in (query, *memory, boxes, query[::-1].copy())]
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            output = block(inputs[0], inputs[1:3], inputs[3], positions=inputs[4], training=True)
            loss = tf.reduce_sum(output**3)
        found.append(tape.gradient(loss, [*inputs, *(weight.value for weight in block.trainable_weights)]))
    assert all(np.abs(np.asarray(each)).max() > 1e-3 for each in found[0][:5])
    for first, second in zip(*found, strict=True):
        np.testing.assert_allclose(np.asarray(first), np.asarray(second), atol=1e-4)


def test_what_does_not_fit_is_refused():
    query, memory, boxes = arrays("float32")
    with pytest.raises(ValueError, match="takes 3 feature maps. Received: 2"):
        MultiScaleDeformableAttention(HEADS)(query, memory, boxes)
    with pytest.raises(ValueError, match="num_heads=4 does not divide the width 6"):
        MultiScaleDeformableAttention(4, 1, 2)(query, memory, boxes)
    with pytest.raises(ValueError, match="for each of 2 levels"):
        MultiScaleDeformableAttention(HEADS, (1, 2, 3), 2)
    with pytest.raises(ValueError, match="bilinear"):
        MultiScaleDeformableAttention(HEADS, sampling="cubic")
