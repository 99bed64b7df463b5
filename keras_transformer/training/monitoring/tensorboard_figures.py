"""Plots in TensorBoard during training."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from keras_transformer import plots
from keras_transformer.attention.arguments import positive
from keras_transformer.plots.figure import new_figure
from keras_transformer.utils.types import Logs, Path

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class TensorBoardFigures(keras.callbacks.Callback):
    """Callback that writes plots of a model to TensorBoard's image summaries, at intervals of epochs.

    Plotted automatically if the logs have the data: `training_curve`; `expert_load`, with `MixtureOfExperts`; `coding_rate`,
    with a `training.CodingRate` earlier in the list of callbacks. Other plots, such as the attention to an image, are given
    as functions. Writing needs no TensorBoard, which only reads the files (`pip install tensorboard`, `tensorboard --logdir
    logs`); they may be in the same folder as those of `keras.callbacks.TensorBoard`.

    Args:
        log_dir: str or path. Folder of the logs, created if missing.
        figures: dict of name to function of the model that returns a `matplotlib.figure.Figure`; None for none.
        every_epochs: int >= 1. Interval in epochs; the last epoch is always plotted. Default 1.

    Raises:
        ImportError: at the start of training, matplotlib is not installed.
        ValueError: `every_epochs` below 1, or a value of `figures` that is not a function.

    Example:

    >>> import numpy as np
    >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> def bias(model):
    ...     return plots.figure.new_figure(1, 1)
    >>> figures = TensorBoardFigures("logs", {"bias": bias})
    >>> _ = model.fit(np.ones((4, 1)), np.ones((4, 1)), epochs=2, callbacks=[figures], verbose=0)
    >>> sorted(figures.drawn)
    ['bias', 'training_curve']
    """

    def __init__(
        self,
        log_dir: Path,
        figures: Mapping[str, Callable[[keras.Model], Figure]] | None = None,
        every_epochs: int = 1,
    ) -> None:
        super().__init__()
        self.log_dir = os.fspath(log_dir)
        self.figures = dict(figures or {})
        self.every_epochs = positive("every_epochs", every_epochs)
        for name, draw in self.figures.items():
            if not callable(draw):
                raise ValueError(f"The figure {name!r} must be a function of the model. Received: {draw!r}")
        self.drawn: set[str] = set()
        self._writer: Any = None
        self._history: dict[str, list[float]] = {}
        self._pending: int | None = None

    def on_train_begin(self, logs: Logs | None = None) -> None:
        import tensorflow as tf

        new_figure(1, 1)  # Fails before the first epoch if matplotlib is missing.
        self._history, self._pending = {}, None
        self._writer = tf.summary.create_file_writer(self.log_dir)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        for name, value in (logs or {}).items():
            self._history.setdefault(name, []).append(float(value))
        self._pending = epoch
        if (epoch + 1) % self.every_epochs == 0:
            self._write()

    def on_train_end(self, logs: Logs | None = None) -> None:
        if self._pending is not None:
            self._write()
        self._writer.close()

    def _write(self):
        if self.figures and hasattr(self.model, "jax_state_sync"):
            self.model.jax_state_sync()  # JAX keeps the weights outside the model during training.
        with self._writer.as_default(step=self._pending):
            for name, figure in self._figures():
                _write_image(name, figure)
                self.drawn.add(name)
        self._writer.flush()
        self._pending = None

    def _figures(self):
        names = self._history
        curves = {name: values for name, values in names.items() if not _is_of_a_layer(name)}
        if curves:
            yield "training_curve", plots.training_curve(curves)
        if any(name.endswith("/load_0") for name in names):
            yield "expert_load", plots.expert_load(names)
        if {"coding_rate_0", "sparsity_0"} <= set(names):
            yield "coding_rate", plots.coding_rate(names)
        for name, draw in self.figures.items():
            yield name, draw(self.model)


def _is_of_a_layer(name):
    """Whether an entry of the logs belongs to a layer, and is plotted separately."""
    return "/" in name or name.startswith(("coding_rate_", "sparsity_"))


def _write_image(name, figure):
    """Writes the summary of `tf.summary.image`, which needs TensorBoard installed: width, height and a PNG."""
    import tensorflow as tf
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    pixels = np.asarray(canvas.buffer_rgba())
    height, width, _ = pixels.shape
    metadata = tf.compat.v1.SummaryMetadata(
        plugin_data=tf.compat.v1.SummaryMetadata.PluginData(plugin_name="images"),
        data_class="DATA_CLASS_BLOB_SEQUENCE",
    )
    png = tf.io.encode_png(np.ascontiguousarray(pixels)).numpy()
    values = np.array([str(width).encode(), str(height).encode(), png], dtype=object)
    tf.summary.write(name, tf.constant(values), metadata=metadata)
