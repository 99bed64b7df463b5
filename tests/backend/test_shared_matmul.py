"""Products that TensorFlow gets wrong by itself, against NumPy."""

import numpy as np
import pytest

from keras_transformer.attention import MultiHeadAttention
from keras_transformer.backend.kernels.shared_matmul import shared_matmul


@pytest.mark.parametrize("kernel", [(16, 5), (1, 16, 5), (2, 16, 5)])
@pytest.mark.parametrize("heads", [1, 2])
def test_a_large_batch_shares_the_kernel(heads, kernel):
    """520 rows of one head: there the broadcast product of TensorFlow 2.21 is wrong."""
    if len(kernel) == 3 and kernel[0] != heads:
        pytest.skip("a kernel for each head")
    rng = np.random.default_rng(0)
    x, kernel = rng.normal(size=(520, heads, 8, 16)).astype("float32"), rng.normal(size=kernel).astype("float32")
    np.testing.assert_allclose(shared_matmul(x, kernel), np.matmul(x.astype("float64"), kernel), atol=1e-5)


@pytest.mark.parametrize("position", ["shaw", "transformer_xl", "relative_bias"])
def test_rows_of_a_large_batch_are_what_each_is_alone(position):
    layer = MultiHeadAttention(1, 16, position=position)
    x = np.repeat(np.random.default_rng(0).normal(size=(1, 8, 32)), 520, axis=0).astype("float32")
    output = np.asarray(layer(x, x))
    np.testing.assert_allclose(output, np.repeat(output[:1], 520, axis=0), atol=1e-5)
    np.testing.assert_allclose(output[:1], layer(x[:1], x[:1]), atol=1e-5)
