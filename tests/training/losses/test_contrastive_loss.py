import numpy as np
import pytest

from keras_transformer.training import ContrastiveLoss


def log_softmax(scores, axis):
    return scores - np.log(np.exp(scores).sum(axis=axis, keepdims=True))


LOGITS = np.random.default_rng(0).normal(size=(4, 4)).astype("float32") * 3


def test_distinct_labels_are_cross_entropy_of_rows_and_columns():
    rows, columns = (-np.diag(log_softmax(scores.astype("float64"), axis=1)) for scores in (LOGITS, LOGITS.T))
    assert float(ContrastiveLoss()(np.arange(4), LOGITS)) == pytest.approx((rows + columns).mean() / 2, abs=1e-5)
    assert float(ContrastiveLoss(symmetric=False)(np.arange(4), LOGITS)) == pytest.approx(rows.mean(), abs=1e-5)


def test_pairs_with_one_label_match_each_other():
    rows = -log_softmax(LOGITS.astype("float64"), axis=1)
    expected = np.array([(rows[0, 0] + rows[0, 2]) / 2, rows[1, 1], (rows[2, 0] + rows[2, 2]) / 2, rows[3, 3]])
    loss = ContrastiveLoss(symmetric=False, reduction=None)
    np.testing.assert_allclose(np.asarray(loss(np.array([7, 1, 7, 3]), LOGITS)), expected, atol=1e-5)


def test_rows_are_weighted():
    loss, weights = ContrastiveLoss(symmetric=False, reduction="sum"), np.array([1.0, 0.0, 2.0, 0.0], "float32")
    rows = -np.diag(log_softmax(LOGITS.astype("float64"), axis=1))
    assert float(loss(np.arange(4), LOGITS, sample_weight=weights)) == pytest.approx(rows @ weights, abs=1e-4)


def test_config():
    loss = ContrastiveLoss.from_config(ContrastiveLoss(symmetric=False, reduction="sum").get_config())
    assert (loss.symmetric, loss.reduction) == (False, "sum")
