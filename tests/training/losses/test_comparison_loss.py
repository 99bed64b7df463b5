"""The loss of comparisons."""

import numpy as np
import pytest

from keras_transformer.training import ComparisonLoss

SCORES = np.array([[2.0, -1.0], [0.5, 0.75], [-300.0, 300.0]])


@pytest.mark.parametrize("labels", [[1.0, 0.0, 0.0], [0.5, 0.25, 1.0]])
def test_it_is_the_cross_entropy_of_the_preference(labels):
    difference = SCORES[:, 0] - SCORES[:, 1]
    expected = np.logaddexp(0, -difference) * labels + np.logaddexp(0, difference) * (1 - np.array(labels))
    for label in (np.array(labels), np.array(labels)[:, None]):
        assert float(ComparisonLoss()(label, SCORES)) == pytest.approx(expected.mean(), rel=1e-6)
    assert float(ComparisonLoss(reduction="sum")(np.array(labels), SCORES)) == pytest.approx(expected.sum(), rel=1e-6)


def test_adding_to_both_scores_changes_nothing():
    labels = np.array([1.0, 0.5, 0.0])
    assert float(ComparisonLoss()(labels, SCORES + 8)) == pytest.approx(float(ComparisonLoss()(labels, SCORES)))


def test_config():
    loss = ComparisonLoss(name="preference", reduction="sum")
    assert ComparisonLoss.from_config(loss.get_config()).get_config() == loss.get_config()
    assert (loss.name, loss.reduction) == ("preference", "sum")
