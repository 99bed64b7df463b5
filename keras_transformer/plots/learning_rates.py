"""The loss by learning rate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from keras_transformer.plots.figure import FAINT, FIRST, SECOND, new_figure, plain_axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def learning_rates(sweep: Any) -> Figure:
    """Plots the loss of a learning-rate sweep, with the suggested rate.

    Args:
        sweep: the `training.LearningRates` of `training.find_learning_rate`.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ImportError: matplotlib is not installed.

    Example:

    >>> from types import SimpleNamespace
    >>> sweep = SimpleNamespace(rates=[1e-3, 1e-2, 1e-1], losses=[3.0, 2.0, 4.0], smoothed=[3.0, 2.4, 3.0], suggestion=1e-2)
    >>> figure = learning_rates(sweep)
    >>> figure.savefig("rates.png")
    >>> figure.axes[0].get_xscale()
    'log'
    """
    figure = new_figure(5.2, 3.4)
    axes = figure.add_subplot()
    axes.plot(sweep.rates, sweep.losses, color=FAINT, linewidth=0.8, label="loss")
    axes.plot(sweep.rates, sweep.smoothed, color=FIRST, linewidth=2, label="smoothed")
    axes.axvline(sweep.suggestion, color=SECOND, linestyle="--", label=f"suggested: {sweep.suggestion:.2g}")
    low, high = min(sweep.smoothed), max(sweep.smoothed[0], min(sweep.smoothed))
    margin = max(high - low, 1e-9)
    axes.set_ylim(low - 0.2 * margin, high + 0.6 * margin)
    axes.set(xscale="log", xlabel="learning rate", ylabel="loss")
    axes.legend(frameon=False)
    plain_axes(axes)
    return figure
