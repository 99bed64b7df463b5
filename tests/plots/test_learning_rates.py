from types import SimpleNamespace

from keras_transformer import plots


def test_curves_and_the_suggestion():
    sweep = SimpleNamespace(
        rates=[1e-3, 1e-2, 1e-1], losses=[3.0, 1.0, 40.0], smoothed=[3.0, 2.4, 9.0], suggestion=1e-2
    )
    (axes,) = plots.learning_rates(sweep).axes
    losses, smoothed, suggestion = axes.get_lines()
    assert list(losses.get_ydata()) == sweep.losses
    assert list(smoothed.get_ydata()) == sweep.smoothed
    assert suggestion.get_xdata()[0] == 1e-2
    low, high = axes.get_ylim()
    assert low < 2.4 < 3.0 < high < 9.0  # Losses of a training that diverges do not set the scale.
