import numpy as np
import pytest

from keras_transformer.training import SigmoidContrastiveLoss

LOGITS = np.random.default_rng(0).normal(size=(3, 3)) * 4


def expected(labels):
    """The mean over rows, in float64, of the sum over columns of log(1 + exp(-z s))."""
    signs = np.where(labels[:, None] == labels[None], 1.0, -1.0)
    return np.log1p(np.exp(-signs * LOGITS)).sum(axis=1)


@pytest.mark.parametrize("labels", [[0, 1, 2], [4, 7, 4]])
def test_every_pair_is_classified_by_itself(labels):
    rows = expected(np.array(labels))
    loss = SigmoidContrastiveLoss()
    assert float(loss(np.array(labels), LOGITS.astype("float32"))) == pytest.approx(rows.mean(), rel=1e-6)
    loss = SigmoidContrastiveLoss.from_config(SigmoidContrastiveLoss(reduction=None, name="pairs").get_config())
    assert loss.name == "pairs"
    np.testing.assert_allclose(np.asarray(loss(np.array(labels), LOGITS.astype("float32"))), rows, rtol=1e-5)


def test_large_logits_stay_finite():
    logits = np.array([[-300.0, 300.0], [300.0, -300.0]], "float32")
    assert float(SigmoidContrastiveLoss()(np.arange(2), logits)) == pytest.approx(600)
