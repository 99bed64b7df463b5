"""The picture of rates along the blocks."""

import numpy as np
import pytest

from keras_transformer import plots


def lines(axes):
    return {line.get_label(): line.get_ydata().tolist() for line in axes.get_lines() if line.get_label()[0] != "_"}


def test_first_and_last_epoch_by_block():
    history = {"loss": [1.0, 0.5, 0.4]}
    for block in range(11):  # Ten and more: names in the order of numbers, not of letters.
        history |= {f"coding_rate_{block}": [9.0 - block, 8.0 - block, 7.0 - block]}
        history |= {f"sparsity_{block}": [0.5, 0.4, block / 10]}
    figure = plots.coding_rate(history)
    rate, sparsity = figure.axes
    assert lines(rate) == {"epoch 1": [9.0 - b for b in range(11)], "epoch 3": [7.0 - b for b in range(11)]}
    assert lines(sparsity) == {"epoch 1": [0.5] * 11, "epoch 3": [b / 10 for b in range(11)]}
    first, between, last = rate.get_lines()
    assert between.get_ydata().tolist() == [8.0 - b for b in range(11)]
    assert (first.get_marker(), first.get_linestyle()) != (last.get_marker(), last.get_linestyle())
    assert rate.get_xlabel() == "block"


def test_one_model():
    figure = plots.coding_rate({"coding_rate_0": 3.0, "coding_rate_1": 2.0, "sparsity_0": 0.5, "sparsity_1": 0.25})
    assert [line.get_ydata().tolist() for axes in figure.axes for line in axes.get_lines()] == [[3.0, 2.0], [0.5, 0.25]]
    assert all(axes.get_legend() is None for axes in figure.axes)


def test_a_history_without_rates_is_refused():
    with pytest.raises(ValueError, match="no coding_rate_0"):
        plots.coding_rate({"loss": [np.float32(1.0)]})
