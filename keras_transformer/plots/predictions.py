"""Images with predicted classes."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.plots.figure import ALARM, QUIET, displayable, new_figure, remove_axes
from keras_transformer.utils.types import ArrayLike

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_LETTERS = 14  # That fit over an image.


def predictions(
    images: ArrayLike, labels: ArrayLike, probabilities: ArrayLike, class_names: Sequence[str], columns: int = 8
) -> Figure:
    """Plots images with their most probable classes; errors are red, with the correct class below. Long names are cut.

    Args:
        images: `(n, H, W, 1 or 3)`, 0 .. 255 or 0 .. 1.
        labels: int `(n,)`. The correct classes.
        probabilities: float `(n, classes)`. Outputs of the model.
        class_names: sequence of strings.
        columns: int >= 1. Images per row. Default 8.

    Returns:
        A `matplotlib.figure.Figure` with one axes per image.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: different numbers of images, labels or probabilities, or of classes.

    Example:

    >>> images = np.random.default_rng(0).uniform(size=(2, 8, 8, 3))
    >>> figure = predictions(images, labels=[0, 1], probabilities=[[0.9, 0.1], [0.6, 0.4]], class_names=["cat", "dog"])
    >>> figure.savefig("predictions.png")
    >>> len(figure.axes)
    2
    """
    images, labels, probabilities = (np.asarray(part) for part in (images, labels, probabilities))
    if not len(images) == len(labels) == len(probabilities) > 0:
        raise ValueError(f"Received {len(images)} images, {len(labels)} labels, {len(probabilities)} predictions.")
    if probabilities.shape[1:] != (len(class_names),):
        raise ValueError(f"Received {len(class_names)} class names and predictions {probabilities.shape}.")
    columns = min(columns, len(images))
    rows = -(-len(images) // columns)
    shown = [_lines(name) for name in class_names]
    lines = max(each.count("\n") for each in shown) + 1
    figure = new_figure(1.25 * columns, (1.5 + 0.26 * lines) * rows)
    for index, (image, label, row) in enumerate(zip(images, labels, probabilities, strict=True)):
        axes = figure.add_subplot(rows, columns, index + 1)
        remove_axes(axes)
        axes.imshow(displayable(image), cmap="gray", vmin=0, vmax=1)
        best = int(row.argmax())
        right = best == label
        axes.set_title(f"{shown[best]}\n{row[best]:.0%}", fontsize=8, color="black" if right else ALARM)
        axes.set_xlabel(" " if right else f"is {shown[label]}", fontsize=8, color=QUIET)
    return figure


def _lines(name):
    """Returns a class name in lines of the width of an image, two at most."""
    lines = textwrap.wrap(name, _LETTERS) or [""]
    if len(lines) > 2:
        lines = [lines[0], textwrap.shorten(" ".join(lines[1:]), _LETTERS, placeholder="…")]
    return "\n".join(line if len(line) <= _LETTERS else line[: _LETTERS - 1] + "…" for line in lines)
