"""The load of the experts of a mixture."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.plots.figure import FAINT, FIRST, SECOND, integer_ticks, new_figure, plain_axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def expert_load(history: object) -> Figure:
    """Plots the fraction of the load of each expert, for each mixture of experts of a model.

    Bars are the last epoch, dots the first; the dashed line is a uniform load.

    Args:
        history: the history of `model.fit` for a model with `MixtureOfExperts`, or its dict of lists, or the logs of one
            epoch: the entries "PATH/load_0", "PATH/load_1", ... and "PATH/dropped".

    Returns:
        A `matplotlib.figure.Figure` with one axes per layer.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: the history has no loads.

    Example:

    >>> history = {"moe/load_0": [0.9, 0.6], "moe/load_1": [0.1, 0.4], "moe/dropped": [0.2, 0.0]}
    >>> figure = expert_load(history)
    >>> figure.savefig("experts.png")
    >>> len(figure.axes)
    1

    Reference: Shazeer et al., Outrageously Large Neural Networks, arXiv 1701.06538, appendix A (load).
    """
    layers = _loads(getattr(history, "history", history))
    columns = min(3, len(layers))
    rows = -(-len(layers) // columns)
    figure = new_figure(0.6 + 3.2 * columns, 0.4 + 2.5 * rows)
    for index, (path, (loads, dropped)) in enumerate(layers.items()):
        axes = figure.add_subplot(rows, columns, index + 1)
        _draw(axes, loads, dropped)
        axes.set_title(path.replace("_", " "), fontsize=9)
        if index % columns == 0:
            axes.set_ylabel("share of the load")
    return figure


def _loads(history):
    """Returns the loads `(epochs, E)` and the dropped tokens `(epochs,)` of each layer by path."""
    found: dict[str, dict[int, np.ndarray]] = {}
    for name, values in history.items():
        if match := re.fullmatch(r"(?!val_)(.+)/load_(\d+)", name):
            found.setdefault(match[1], {})[int(match[2])] = np.atleast_1d(np.asarray(values, "float64"))
    if not found:
        raise ValueError("The history has no expert loads: the model has no MixtureOfExperts.")
    layers = {}
    for path, by_expert in found.items():
        loads = np.stack([by_expert[index] for index in sorted(by_expert)], axis=1)
        dropped = np.asarray(history.get(f"{path}/dropped", 0), "float64")
        layers[path] = loads, np.broadcast_to(dropped, len(loads))
    return layers


def _draw(axes, loads, dropped):
    shares = loads / np.maximum(loads.sum(axis=1, keepdims=True), 1)
    experts = range(loads.shape[1])
    axes.bar(experts, shares[-1], color=FIRST, width=0.75, label="last epoch" if len(loads) > 1 else None)
    if len(loads) > 1:
        axes.plot(experts, shares[0], "o", color=SECOND, markersize=5, markeredgecolor="white", label="first epoch")
        axes.legend(frameon=False, fontsize=8)
    axes.axhline(1 / loads.shape[1], color=FAINT, linewidth=1.2, linestyle="--")
    lost = dropped[-1] / max(loads[-1].sum(), 1)
    axes.set_xlabel("expert" if not lost else f"expert ({lost:.1%} dropped)")
    integer_ticks(axes.xaxis)
    axes.set_ylim(0, max(1.4 * shares[[0, -1]].max(), 1e-12))
    plain_axes(axes)
