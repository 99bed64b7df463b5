import builtins

import keras
import numpy as np
import pytest

from keras_transformer import plots


def test_curves_hold_the_values():
    history = {"loss": [3.0, 2.0, 1.0], "val_loss": [3.5, 2.5, 2.0], "accuracy": [0.1, 0.2, 0.3], "seconds": 5.0}
    loss, accuracy = plots.training_curve(history).axes
    assert (loss.get_title(), accuracy.get_title()) == ("loss", "accuracy")
    training, validation = loss.get_lines()
    np.testing.assert_array_equal(training.get_xydata(), [[1, 3.0], [2, 2.0], [3, 1.0]])
    np.testing.assert_array_equal(validation.get_ydata(), [3.5, 2.5, 2.0])
    assert training.get_linestyle() != validation.get_linestyle()  # Told apart without their colors.
    assert [text.get_text() for text in loss.get_legend().get_texts()] == ["training", "validation"]
    assert [text.get_text() for text in loss.texts] == ["2"]
    assert len(accuracy.get_lines()) == 1
    assert accuracy.get_legend() is None


def test_metrics_are_in_rows_of_three():
    history = {name: [1.0, 2.0] for name in ("loss", "accuracy", "precision", "recall")}
    figure = plots.training_curve(history)
    places = [axes.get_subplotspec() for axes in figure.axes]
    assert [(each.rowspan.start, each.colspan.start) for each in places] == [(0, 0), (0, 1), (0, 2), (1, 0)]
    np.testing.assert_allclose(figure.get_size_inches(), [3 * 4.6, 2 * 3.4])


@pytest.mark.parametrize("epochs", [1, 2, 30])
def test_epochs_are_integers(epochs):
    (axes,) = plots.training_curve({"loss": list(range(epochs))}).axes
    low, high = axes.get_xlim()
    ticks = [each for each in axes.get_xticks() if low <= each <= high]
    assert ticks
    assert all(float(each).is_integer() for each in ticks)


def test_takes_what_fit_returns(tmp_path):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    history = model.fit(np.ones((4, 1)), np.ones((4, 1)), epochs=1, verbose=0)
    figure = plots.training_curve(history)
    np.testing.assert_array_equal(figure.axes[0].get_lines()[0].get_ydata(), history.history["loss"])
    figure.savefig(tmp_path / "curve.png")
    assert (tmp_path / "curve.png").stat().st_size > 1000


@pytest.mark.parametrize("history", [{}, {"loss": []}, {"seconds": 3.0}])
def test_refuses_an_empty_history(history):
    with pytest.raises(ValueError, match="no epochs"):
        plots.training_curve(history)


def test_names_the_extra_when_matplotlib_is_missing(monkeypatch):
    real_import = builtins.__import__

    def without_matplotlib(name, *arguments, **options):
        if name.startswith("matplotlib"):
            raise ModuleNotFoundError("No module named 'matplotlib'")
        return real_import(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without_matplotlib)
    with pytest.raises(ImportError, match=r"\[plots\]"):
        plots.training_curve({"loss": [1.0]})
