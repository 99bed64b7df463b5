"""The Fréchet distance against its formula."""

import numpy as np
import pytest
from scipy import linalg

from keras_transformer.diffusion import frechet_distance

RANDOM = np.random.default_rng(0)


def test_formula():
    one = RANDOM.normal(size=(50, 6)) @ RANDOM.normal(size=(6, 6)) + 1.0
    other = RANDOM.normal(size=(70, 6)) @ RANDOM.normal(size=(6, 6))
    covariances = np.cov(one.T), np.cov(other.T)
    root = linalg.sqrtm(covariances[0] @ covariances[1]).real
    distance = np.sum((one.mean(0) - other.mean(0)) ** 2) + np.trace(sum(covariances) - 2 * root)
    np.testing.assert_allclose(frechet_distance(one, other), distance, rtol=1e-8)
    np.testing.assert_allclose(frechet_distance(one, one), 0.0, atol=1e-6)


def test_fewer_rows_than_features():
    one, other = RANDOM.normal(size=(4, 9)), RANDOM.normal(size=(5, 9)) + 2.0
    root = linalg.sqrtm(np.cov(one.T) @ np.cov(other.T)).real
    distance = np.sum((one.mean(0) - other.mean(0)) ** 2) + np.trace(np.cov(one.T) + np.cov(other.T) - 2 * root)
    np.testing.assert_allclose(frechet_distance(one, other), distance, rtol=1e-4)


def test_other_shapes():
    with pytest.raises(ValueError, match=r"\(3, 2\) and \(3, 4\)"):
        frechet_distance(np.zeros((3, 2)), np.zeros((3, 4)))
