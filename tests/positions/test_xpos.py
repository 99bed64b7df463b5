"""xPos against torchscale."""

from pathlib import Path

import numpy as np
import pytest

from keras_transformer.positions import Rotary, XPos

GOLDEN = np.load(Path(__file__).parents[1] / "data" / "xpos.npz")


def test_queries_keys_and_scores_of_the_reference():
    query, key = (np.expand_dims(GOLDEN[f"inputs/{name}"], 2) for name in "qk")
    places = np.arange(12, dtype="int32")
    turned = [np.asarray(x)[:, :, 0] for x in XPos(center=6).rotate(query, key, places, places)]
    np.testing.assert_allclose(turned[0], GOLDEN["outputs/q_offset0"], atol=1e-6)
    np.testing.assert_allclose(turned[1], GOLDEN["outputs/k_down"], atol=1e-6)
    # With the center of every model, not of one length, scores are the same.
    query, key = (np.asarray(x)[:, :, 0] for x in XPos().rotate(query, key, places, places))
    np.testing.assert_allclose(query @ key.transpose(0, 2, 1), GOLDEN["outputs/scores"], atol=1e-5)


@pytest.mark.parametrize("layout", ["pairs", "halves"])
def test_formula(layout):
    rng, width, base, center = np.random.default_rng(0), 6, 20.0, 5
    x = rng.normal(size=(2, 4, 3, width))
    places = np.array([[0, 1, 2, 3], [30, 40, 41, 5]])
    turned = np.asarray(Rotary(layout=layout)(x, positions=places))
    pairs = np.arange(width) // 2 if layout == "pairs" else np.arange(width) % 3
    growth = ((2 * pairs / width + 0.4) / 1.4) ** ((places - center)[..., None, None] / base)
    query, key = XPos(scale_base=base, center=center, layout=layout).rotate(x, x, places, places)
    np.testing.assert_allclose(query, turned * growth, atol=2e-5)
    np.testing.assert_allclose(key, turned / growth, rtol=2e-5, atol=2e-5)


def test_refused():
    with pytest.raises(ValueError, match="must be even"):
        XPos().rotate(np.ones((1, 2, 1, 3)), np.ones((1, 2, 1, 3)), np.arange(2), np.arange(2))
    with pytest.raises(ValueError, match="layout"):
        XPos(layout="no_such")
    with pytest.raises(ValueError, match="scale_base"):
        XPos(scale_base=0)
