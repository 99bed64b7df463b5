"""Projections of heads that are applied to the other factor of a product, as in latent attention."""

from __future__ import annotations

from keras import ops

from keras_transformer.layers.projection import Projection
from keras_transformer.layers.ternary import is_ternary
from keras_transformer.utils.types import DType, Tensor


def can_be_absorbed(projection: Projection) -> bool:
    """Returns whether a projection is a product with its kernel, without roundings of the kernel or of the inputs."""
    is_rounded = is_ternary(projection) or projection.quantization_mode is not None
    return not is_rounded and getattr(projection, "input_quantizer", None) is None


def kernel_by_head(projection: Projection, dtype: DType) -> Tensor:
    """Returns the kernel `(R, N, H)` of a projection to heads as `(N, R, H)`."""
    return ops.transpose(ops.cast(projection.kernel, dtype), (1, 0, 2))


def project_each_head(x: Tensor, kernels: Tensor) -> Tensor:
    """Returns the product of each head with its kernel: `(B, T, N, I)` and `(N, I, O)` to `(B, T, N, O)`.

    Example:

    >>> import numpy as np
    >>> x, kernels = np.array([[[[1.0], [2.0]]]]), np.array([[[3.0, 0.0]], [[0.0, 5.0]]])
    >>> project_each_head(x, kernels).numpy().tolist()
    [[[[3.0, 0.0], [0.0, 10.0]]]]
    """
    length, heads, width = ops.shape(x)[1], x.shape[2], x.shape[3]
    by_head = ops.transpose(ops.reshape(x, (-1, heads, width)), (1, 0, 2))
    products = ops.transpose(ops.matmul(by_head, kernels), (1, 0, 2))
    return ops.reshape(products, (-1, length, heads, kernels.shape[2]))
