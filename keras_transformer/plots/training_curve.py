"""Training curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from keras_transformer.plots.figure import AFTER, BEFORE, SECOND, integer_ticks, new_figure, plain_axes

if TYPE_CHECKING:
    import keras
    from matplotlib.figure import Figure


_COLUMNS = 3


def training_curve(history: keras.callbacks.History | Mapping[str, Sequence[float]]) -> Figure:
    """Plots loss and metrics by epoch, three in a row; with validation, training is dashed and validation solid.

    Args:
        history: the history of `model.fit`, or its dict of lists; other entries are ignored.

    Returns:
        A `matplotlib.figure.Figure` with one axes for the loss and one for each metric.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: the history has no epochs.

    Example:

    >>> history = {"loss": [1.2, 0.7, 0.5], "val_loss": [1.3, 0.9, 0.8], "accuracy": [0.4, 0.7, 0.8]}
    >>> figure = training_curve(history)
    >>> figure.savefig("curve.png")
    >>> [axes.get_title() or axes.get_ylabel() for axes in figure.axes]
    ['loss', 'accuracy']
    """
    curves = getattr(history, "history", history)
    curves = {name: values for name, values in curves.items() if isinstance(values, (list, tuple)) and values}
    names = [name for name in curves if not name.startswith("val_") and name != "learning_rate"]
    if not names:
        raise ValueError("The history has no epochs to plot.")
    columns = min(_COLUMNS, len(names))
    rows = -(-len(names) // columns)
    figure = new_figure(4.6 * columns, 3.4 * rows)
    for index, name in enumerate(names):
        _draw(figure.add_subplot(rows, columns, index + 1), name, curves[name], curves.get(f"val_{name}"))
    return figure


def _draw(axes, name, training, validation):
    alone = validation is None
    _plot(axes, training, "training", BEFORE | {"linestyle": "-"} if alone else BEFORE)
    if not alone:
        _plot(axes, validation, "validation", AFTER)
        _mark_last(axes, validation)
        axes.legend(frameon=False)
    axes.set_title(name.replace("_", " "))
    axes.set_xlabel("epoch")
    integer_ticks(axes.xaxis)
    axes.margins(x=0.02)
    plain_axes(axes)


def _plot(axes, values, label, style):
    axes.plot(range(1, len(values) + 1), values, marker="o" if len(values) == 1 else None, label=label, **style)


def _mark_last(axes, values):
    """Annotates the last value of a curve."""
    axes.annotate(
        f"{values[-1]:.3g}",
        (len(values), values[-1]),
        xytext=(5, 0),
        textcoords="offset points",
        color=SECOND,
        va="center",
        fontsize=9,
        annotation_clip=False,
    )
