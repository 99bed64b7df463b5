"""The step towards a sparse code."""

import numpy as np
import pytest

from keras_transformer.feedforward import ISTA


def test_formula():
    x = np.random.default_rng(0).normal(size=(2, 3, 5)).astype("float32")
    layer = ISTA(step_size=0.3, sparsity_weight=0.2)
    output = np.asarray(layer(x))
    d = np.asarray(layer.dictionary, "float64")
    z = x.reshape(-1, 5).T  # Tokens are columns, as in the paper.
    expected = np.maximum(z + 0.3 * d.T @ (z - d @ z) - 0.3 * 0.2, 0).T.reshape(x.shape)
    np.testing.assert_allclose(output, expected, atol=1e-6)
    assert 0 < np.mean(output == 0) < 1


def test_steps_lower_the_cost_of_the_code():
    """Many steps on one token's code minimize `½ |z - D a|² + λ Σ a` over what is not negative: the step is of that."""
    rng = np.random.default_rng(1)
    layer = ISTA(step_size=0.05, sparsity_weight=0.1)
    x = np.abs(rng.normal(size=(1, 1, 6))).astype("float32")
    layer(x)
    d = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    layer.dictionary.assign(d)

    def cost(code):
        return 0.5 * np.sum((x[0, 0] - d @ code) ** 2) + 0.1 * np.sum(np.abs(code))

    assert cost(np.asarray(layer(x))[0, 0]) < cost(x[0, 0])


@pytest.mark.parametrize("options", [{"step_size": 0.0}, {"sparsity_weight": -0.1}])
def test_values_out_of_range(options):
    with pytest.raises(ValueError, match="step_size must be above 0"):
        ISTA(**options)
