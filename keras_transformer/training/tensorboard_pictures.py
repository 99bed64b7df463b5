"""Pictures of a training that go along with it, in TensorBoard."""

import os

import keras
import numpy as np

from keras_transformer import plots
from keras_transformer.attention.arguments import positive


class TensorBoardPictures(keras.callbacks.Callback):
    """Writes pictures of a model in training where TensorBoard shows them, each with a slider over the epochs.

    Drawn by itself, where the logs have what it needs: `training_curve`; `expert_load`, of `MixtureOfExperts`;
    `coding_rate`, with a `training.CodingRate` that stands before it in the list of callbacks. Anything else, such as the
    attention to one image, is given as a function. The files are written without TensorBoard, which only reads them
    (`pip install tensorboard`, `tensorboard --logdir logs`), and may lie beside those of `keras.callbacks.TensorBoard`.

    Args:
        log_dir: path of the folder of the logs; made where there is none.
        pictures: dict of a name to a function of the model that returns a `matplotlib.figure.Figure`; None for none.
        every_epochs: int >= 1. Default 1. The last epoch is always drawn.

    Raises:
        ImportError: at the start of training, matplotlib is not installed.
        ValueError: `every_epochs` below 1, or a picture that is no function.

    Example:

    >>> import numpy as np
    >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> def bias(model):
    ...     return plots.figure.new_figure(1, 1)
    >>> pictures = TensorBoardPictures("logs", {"bias": bias})
    >>> _ = model.fit(np.ones((4, 1)), np.ones((4, 1)), epochs=2, callbacks=[pictures], verbose=0)
    >>> sorted(pictures.drawn)
    ['bias', 'training_curve']
    """

    def __init__(self, log_dir, pictures=None, every_epochs=1):
        super().__init__()
        self.log_dir = os.fspath(log_dir)
        self.pictures = dict(pictures or {})
        self.every_epochs = positive("every_epochs", every_epochs)
        for name, draw in self.pictures.items():
            if not callable(draw):
                raise ValueError(f"The picture {name!r} must be a function of the model. Received: {draw!r}")
        self.drawn = set()
        self._writer, self._history, self._pending = None, {}, None

    def on_train_begin(self, logs=None):
        import tensorflow as tf

        plots.figure.new_figure(1, 1)  # Better told now than after an epoch.
        self._history, self._pending = {}, None
        self._writer = tf.summary.create_file_writer(self.log_dir)

    def on_epoch_end(self, epoch, logs=None):
        for name, value in (logs or {}).items():
            self._history.setdefault(name, []).append(float(value))
        self._pending = epoch
        if (epoch + 1) % self.every_epochs == 0:
            self._write()

    def on_train_end(self, logs=None):
        if self._pending is not None:
            self._write()
        self._writer.close()

    def _write(self):
        if self.pictures and hasattr(self.model, "jax_state_sync"):
            self.model.jax_state_sync()  # On JAX the weights lie outside the model while it trains.
        with self._writer.as_default(step=self._pending):
            for name, figure in self._figures():
                _write_image(name, figure)
                self.drawn.add(name)
        self._writer.flush()
        self._pending = None

    def _figures(self):
        names = self._history
        curves = {name: values for name, values in names.items() if not _is_of_a_part(name)}
        if curves:
            yield "training_curve", plots.training_curve(curves)
        if any(name.endswith("/load_0") for name in names):
            yield "expert_load", plots.expert_load(names)
        if {"coding_rate_0", "sparsity_0"} <= set(names):
            yield "coding_rate", plots.coding_rate(names)
        for name, draw in self.pictures.items():
            yield name, draw(self.model)


def _is_of_a_part(name):
    """Whether an entry of the logs belongs to a layer, and so to a picture of its own."""
    return "/" in name or name.startswith(("coding_rate_", "sparsity_"))


def _write_image(name, figure):
    """As `tf.summary.image` does, which needs TensorBoard installed: width, height and a PNG, marked as an image."""
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
