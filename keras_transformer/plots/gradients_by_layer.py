"""Gradients and updates of the layers of a model during training."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.plots.figure import COLOR_MAP, integer_ticks, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from keras_transformer.training import GradientsByLayer

_MOST_LABELS = 40


def gradients_by_layer(norms: GradientsByLayer) -> Figure:
    """Plots the gradient norm of each layer by step, and the size of its updates relative to its weights.

    Colors are logarithmic. Rows are layers, from the first of the model at the top to the last.

    Args:
        norms: a `training.GradientsByLayer` after `fit`.

    Returns:
        A `matplotlib.figure.Figure` with two axes, and one for each color bar.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: no step is recorded.

    Example:

    >>> from types import SimpleNamespace
    >>> norms = SimpleNamespace(
    ...     steps=[0, 100], gradients={"a": [1.0, 0.1]}, weights={"a": [10.0, 10.0]}, updates={"a": [0.1, 0.01]}
    ... )
    >>> figure = gradients_by_layer(norms)
    >>> figure.savefig("gradients.png")
    >>> [axes.get_title() for axes in figure.axes[:2]]
    ['gradient norm', 'update / weight']
    """
    if not norms.steps:
        raise ValueError("No step is recorded: every is larger than the number of steps.")
    layers = list(norms.gradients)
    gradients, weights, updates = (
        np.array([record[layer] for layer in layers]) for record in (norms.gradients, norms.weights, norms.updates)
    )
    ratios = updates / np.where(weights > 0, weights, np.nan)
    longest = max(map(len, layers))
    figure = new_figure(7 + 0.075 * longest, 1.4 + 0.19 * min(len(layers), _MOST_LABELS))
    left, right = figure.subplots(1, 2, sharey=True)
    _draw(left, "gradient norm", norms.steps, gradients)
    _draw(right, "update / weight", norms.steps, ratios)
    left.invert_yaxis()
    shown = range(0, len(layers), -(-len(layers) // _MOST_LABELS))
    left.set_yticks(shown, [layers[index] for index in shown], fontsize=8)
    return figure


def _draw(axes, title, steps, values):
    from matplotlib.colors import LogNorm

    visible = values[np.isfinite(values) & (values > 0)]
    low, high = (visible.min(), visible.max()) if visible.size else (1.0, 10.0)
    scale = LogNorm(low, high if high > low else 10 * low)
    edges = [*steps, steps[-1] + (steps[-1] - steps[-2] if len(steps) > 1 else 1)]
    masked = np.ma.masked_invalid(np.where(values > 0, values, np.nan))
    mesh = axes.pcolormesh(edges, np.arange(len(values) + 1) - 0.5, masked, norm=scale, cmap=COLOR_MAP)
    axes.set_facecolor("#d0d0d0")  # Layers without gradients.
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("step")
    integer_ticks(axes.xaxis)
    axes.figure.colorbar(mesh, ax=axes)
