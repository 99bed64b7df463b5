"""Images with what a model takes them for."""

import numpy as np

from keras_transformer.plots.figure import ALARM, QUIET, as_picture, bare, new_figure
from keras_transformer.utils.types import Tensor


def predictions(images: Tensor, labels: Tensor, probabilities, class_names, columns: int = 8):
    """Draws images with the most probable class of each, mistakes in red with the right class below.

    Args:
        images: `(n, H, W, 1 or 3)`, 0 .. 255 or 0 .. 1.
        labels: int `(n,)`. The right classes.
        probabilities: float `(n, classes)`. What the model returns.
        class_names: sequence of strings.
        columns: int >= 1. Images in a row.

    Returns:
        A `matplotlib.figure.Figure` with one axes per image.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: the arguments differ in their number of images, or of classes.

    Example:

    ```python
    plots.predictions(images[:16], labels[:16], model.predict(images[:16]), class_names).savefig("predictions.png")
    ```
    """
    images, labels, probabilities = (np.asarray(part) for part in (images, labels, probabilities))
    if not len(images) == len(labels) == len(probabilities) > 0:
        raise ValueError(f"Received {len(images)} images, {len(labels)} labels, {len(probabilities)} predictions.")
    if probabilities.shape[1:] != (len(class_names),):
        raise ValueError(f"Received {len(class_names)} class names and predictions {probabilities.shape}.")
    columns = min(columns, len(images))
    rows = -(-len(images) // columns)
    figure = new_figure(1.25 * columns, 1.65 * rows)
    for index, (image, label, row) in enumerate(zip(images, labels, probabilities, strict=True)):
        axes = figure.add_subplot(rows, columns, index + 1)
        bare(axes)
        axes.imshow(as_picture(image), cmap="gray", vmin=0, vmax=1)
        best = int(row.argmax())
        right = best == label
        axes.set_title(f"{class_names[best]}  {row[best]:.0%}", fontsize=9, color="black" if right else ALARM)
        axes.set_xlabel(" " if right else f"is {class_names[label]}", fontsize=8, color=QUIET)
    return figure
