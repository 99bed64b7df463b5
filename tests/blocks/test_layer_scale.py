"""LayerScale, and stochastic depth of any scheme."""

import numpy as np
import pytest

from keras_transformer.blocks import LayerScaleResidual, PostNormResidual, PreNormResidual

X = np.random.default_rng(0).normal(size=(400, 3, 8)).astype("float32")
Y = np.random.default_rng(1).normal(size=(400, 3, 8)).astype("float32")


def test_formula():
    residual = LayerScaleResidual(initial_value=0.5)
    residual.build(X.shape)
    np.testing.assert_allclose(np.asarray(residual.post(X, Y)), X + 0.5 * Y, atol=1e-6)
    residual.scale.assign(np.arange(8.0))
    np.testing.assert_allclose(np.asarray(residual.post(X, Y)), X + np.arange(8) * Y, atol=1e-5)
    entered = np.asarray(residual.pre(X))
    np.testing.assert_allclose(entered.mean(axis=-1), 0, atol=1e-5)
    assert residual.needs_final_norm


@pytest.mark.parametrize("scheme", [PreNormResidual, PostNormResidual, LayerScaleResidual])
def test_stochastic_depth_leaves_out_whole_rows(scheme):
    residual = scheme(stochastic_depth=0.25, seed=3)
    thinned = np.asarray(residual.drop_path(Y, training=True))
    kept = np.abs(thinned).max(axis=(1, 2)) > 0
    assert 0.18 < 1 - kept.mean() < 0.32
    np.testing.assert_allclose(thinned[kept], Y[kept] / 0.75, rtol=1e-5)
    np.testing.assert_array_equal(np.asarray(residual.drop_path(Y, training=False)), Y)
