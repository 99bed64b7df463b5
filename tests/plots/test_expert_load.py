import numpy as np
import pytest

from keras_transformer import plots

HISTORY = {
    "loss": [2.0, 1.0],
    "moe/load_1": [30, 50],
    "moe/load_0": [70, 40],
    "moe/load_2": [0, 10],
    "moe/dropped": [3, 5],
    "val_moe/load_0": [9, 9],
    "other/load_0": [1, 1],
    "other/load_1": [1, 3],
}


def heights(axes):
    return [bar.get_height() for bar in axes.patches]


def test_bars_are_the_last_epoch_and_dots_the_first():
    first, second = plots.expert_load(HISTORY).axes
    assert (first.get_title(), second.get_title()) == ("moe", "other")
    np.testing.assert_allclose(heights(first), [0.4, 0.5, 0.1])
    dots, even = first.get_lines()
    np.testing.assert_allclose(dots.get_ydata(), [0.7, 0.3, 0.0])
    np.testing.assert_allclose(even.get_ydata(), [1 / 3, 1 / 3])
    assert first.get_xlabel() == "expert (5.0% dropped)"
    np.testing.assert_allclose(heights(second), [0.25, 0.75])


def test_takes_the_logs_of_one_epoch():
    (axes,) = plots.expert_load({"moe/load_0": 1, "moe/load_1": 3}).axes
    np.testing.assert_allclose(heights(axes), [0.25, 0.75])
    assert axes.get_legend() is None


def test_refuses_a_model_without_experts():
    with pytest.raises(ValueError, match="no expert loads"):
        plots.expert_load({"loss": [1.0]})
