"""Kernel pooling against sums written out, and what is learned of a width."""

import keras
import numpy as np
import pytest

from keras_transformer.attention import KERNELS, KernelPooling, MultiHeadAttention, SoftmaxAttention
from keras_transformer.attention.scoring.gaussian import Gaussian

FORMULAS = {
    "gaussian": lambda u: np.exp(-(u**2) / 2),
    "boxcar": lambda u: float(u <= 1),
    "epanechnikov": lambda u: max(0.0, 1 - u**2),
    "triangular": lambda u: max(0.0, 1 - u),
    "constant": lambda u: 1.0,
}


def points(length, width=3, seed=0):
    return np.random.default_rng(seed).normal(size=(2, length, width))


def estimate(kernel, widths, query, key, value, seen=None):
    """The estimator, point by point; zeros where nothing is near."""
    weights = np.zeros((*query.shape[:2], key.shape[1]))
    for b, t, s in np.ndindex(*weights.shape):
        if seen is None or seen[b, t, s]:
            weights[b, t, s] = FORMULAS[kernel](np.sqrt((((query[b, t] - key[b, s]) / widths) ** 2).sum()))
    total = weights.sum(-1, keepdims=True)
    weights = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
    return weights @ value, weights


@pytest.mark.parametrize("kernel", KERNELS)
def test_formula(kernel):
    query, key, value = points(7), points(9, seed=1), points(9, 2, seed=2)
    query[0, 3] = 12.0  # Far from all keys: there, in float32, e^(-u² / 2) would be 0.
    seen = np.random.default_rng(3).uniform(size=(2, 7, 9)) > 0.4
    seen[1, 2] = False
    for mask in (None, seen):
        expected = estimate(kernel, 1.3, query, key, value, mask)
        layer = KernelPooling(kernel, width=1.3)
        output = layer(query, key, value, attention_mask=mask, return_attention_scores=True)
        for ours, theirs in zip(output, expected, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_padding_masks():
    query, key, value = points(4), points(5, seed=1), points(5, 2, seed=2)
    query_mask, key_mask = np.arange(4) < [[4], [2]], np.arange(5) < [[3], [5]]
    output = np.asarray(KernelPooling()(query, key, value, query_mask=query_mask, key_mask=key_mask))
    np.testing.assert_allclose(output[0], KernelPooling()(query[:1], key[:1, :3], value[:1, :3])[0], atol=1e-5)
    np.testing.assert_array_equal(output[1, 2:], 0)


def test_far_from_zero_nothing_is_lost():
    query, key, value = points(4), points(5, seed=1), points(5, 2, seed=2)
    expected = estimate("gaussian", 1.0, query, key, value)[0]
    np.testing.assert_allclose(KernelPooling()(query + 1000, key + 1000, value), expected, atol=1e-3)


def test_a_width_of_each_feature():
    query, key, value = points(4), points(5, seed=1), points(5, 2, seed=2)
    layer = KernelPooling("epanechnikov", learn_width=True, per_feature=True)
    layer.build(query.shape, key.shape, value.shape)
    layer.log_width.assign(np.log([1.0, 2.0, 3.0]))
    expected = estimate("epanechnikov", np.array([1.0, 2.0, 3.0]), query, key, value)[0]
    np.testing.assert_allclose(layer(query, key, value), expected, atol=1e-5)


@pytest.mark.exhaustive
@pytest.mark.parametrize("kernel", ["gaussian", "epanechnikov", "triangular"])
def test_width_is_learned_from_the_other_points(kernel):
    """Leaving itself out, a point of a line says that near points are better, and noise that more of them are."""
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(0, 5, size=(1, 60, 1)), axis=1)
    y = 2 * np.sin(x) + x + rng.normal(0, 0.3, size=x.shape)

    layer = KernelPooling(kernel, width=3.0, learn_width=True, leave_one_out=True)
    point, seen = keras.Input((None, 1)), keras.Input((None, 1))
    model = keras.Model([point, seen], layer(point, point, seen))

    def loss():
        return float(np.mean((np.asarray(layer(x, x, y, training=True)) - y) ** 2))

    losses = {}
    for width in [0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0, 1.5, 3.0]:
        layer.log_width.assign([np.log(width)])
        losses[width] = loss()
    model.compile(keras.optimizers.Adam(0.1), "mse", jit_compile=False)
    model.fit([x, y], y, epochs=50, verbose=0)
    assert loss() < 1.05 * min(losses.values()) < 0.5 * losses[3.0]


def test_a_point_sees_itself_unless_it_is_left_out():
    x = np.linspace(0, 5, 9).reshape(1, 9, 1)
    layer = KernelPooling("triangular", width=0.7, leave_one_out=True)
    np.testing.assert_allclose(layer(x, x, x**2)[0, 4], ((x**2)[0, 3:6].T @ [0.075, 0.7, 0.075] / 0.85), atol=1e-5)
    neighbors = ((x**2)[0, 3] + (x**2)[0, 5]) / 2
    np.testing.assert_allclose(layer(x, x, x**2, training=True)[0, 4], neighbors, atol=1e-5)


@pytest.mark.parametrize("width", [3, 12])
def test_products_for_many_features_are_the_formula(width):
    query, key, value = points(4, width), points(5, width, seed=1), points(5, 2, seed=2)
    expected = estimate("epanechnikov", 5.0, query, key, value)[0]
    np.testing.assert_allclose(KernelPooling("epanechnikov", 5.0)(query, key, value), expected, atol=1e-5)


def test_one_hot_values_give_probabilities_of_classes():
    key = np.array([[[0.0, 0.0], [0.0, 1.0], [4.0, 4.0], [5.0, 4.0]]])
    value = np.eye(2)[[[0, 0, 1, 1]]]
    output = np.asarray(KernelPooling()(np.array([[[0.1, 0.2], [4.4, 4.0]]]), key, value))
    np.testing.assert_allclose(output.sum(-1), 1, atol=1e-6)
    assert output.argmax(-1).tolist() == [[0, 1]]


def test_gaussian_scoring_is_the_gaussian_kernel():
    """Heads that are projected by identities, at the width that the scores start from."""
    x, y = points(6, 4), points(6, 4, seed=1)
    layer = MultiHeadAttention(1, 4, use_bias=False, mechanism=SoftmaxAttention(scoring=Gaussian(width=0.8)))
    layer.build(x.shape, x.shape)
    for weight in layer.weights:
        if "kernel" in weight.path:
            weight.assign(np.eye(4).reshape(weight.shape))
    np.testing.assert_allclose(layer(x, y, x), KernelPooling(width=0.8)(x, x, y), atol=1e-5)


def test_refused():
    with pytest.raises(ValueError, match="boxcar, constant, epanechnikov, gaussian, triangular"):
        KernelPooling("no_such")
    with pytest.raises(ValueError, match="width must be positive"):
        KernelPooling(width=0)
    for kernel in ("boxcar", "constant"):
        with pytest.raises(ValueError, match="no gradient"):
            KernelPooling(kernel, learn_width=True)
    with pytest.raises(ValueError, match="learn_width=True"):
        KernelPooling(per_feature=True)


def test_points_are_not_rounded_in_mixed_precision():
    """In bfloat16 all of these points would be 256."""
    x = 256 + np.linspace(0, 0.4, 5).reshape(1, 5, 1)
    value = np.arange(5.0).reshape(1, 5, 1)
    output = KernelPooling("boxcar", width=0.05, dtype="mixed_bfloat16")(x.astype("float32"), x, value)
    assert keras.backend.standardize_dtype(output.dtype) == "bfloat16"
    np.testing.assert_allclose(np.asarray(output).astype(float), value)
