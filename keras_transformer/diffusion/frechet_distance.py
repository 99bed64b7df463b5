"""The Fréchet distance of two sets of features."""

from __future__ import annotations

import numpy as np

from keras_transformer.utils.types import ArrayLike


def frechet_distance(features: ArrayLike, reference_features: ArrayLike) -> float:
    """Returns the Fréchet distance of the normal distributions with the mean and covariance of two sets of features.

    `|μ_1 - μ_2|² + tr(Σ_1 + Σ_2 - 2 (Σ_1 Σ_2)^½)`. With features of an Inception network it is the FID; those of another
    classifier give other numbers, which compare only among themselves.

    Args:
        features: float `(n, D)`, n >= 2.
        reference_features: float `(m, D)`, m >= 2.

    Returns:
        float >= 0, computed in float64.

    Raises:
        ValueError: other shapes.

    Example:

    >>> import numpy as np
    >>> round(frechet_distance(np.array([[0.0], [2.0]]), np.array([[3.0], [7.0]])), 6)  # (5 - 1)² + (√8 - √2)²
    18.0

    Reference: Heusel et al., GANs Trained by a Two Time-Scale Update Rule, arXiv 1706.08500, equation 6.
    """
    one, other = (np.asarray(each, "float64") for each in (features, reference_features))
    if one.ndim != 2 or other.ndim != 2 or one.shape[1] != other.shape[1] or min(len(one), len(other)) < 2:
        raise ValueError(
            f"Features must be (n, D) and (m, D), with at least 2 rows each. Received: {one.shape} and {other.shape}"
        )
    covariances = [np.cov(each, rowvar=False).reshape(one.shape[1], one.shape[1]) for each in (one, other)]
    values, vectors = np.linalg.eigh(covariances[0])
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    # Σ_1 Σ_2 has the eigenvalues of the symmetric matrix Σ_1^½ Σ_2 Σ_1^½.
    shared = np.sqrt(np.maximum(np.linalg.eigvalsh(root @ covariances[1] @ root), 0.0)).sum()
    distance = np.sum((one.mean(axis=0) - other.mean(axis=0)) ** 2)
    return float(max(distance + sum(map(np.trace, covariances)) - 2.0 * shared, 0.0))
