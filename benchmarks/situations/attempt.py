"""One attempt of a situation in a format: exported, run and compared, or refused with a remedy."""

import pathlib

import keras
import numpy as np
import tensorflow as tf
from keras_cells import in_one_line

from keras_transformer.export import ExportError, export, load


class Attempt:
    """A format and a folder, in which a situation exports.

    Args:
        format: name of the format.
        folder: path of a folder for bundles.
    """

    def __init__(self, format, folder):
        self.format, self.folder = format, pathlib.Path(folder)
        self.refusals = []

    def export(self, model, **arguments):
        """The loaded bundle of a model; the arguments are those of `export`."""
        path = self.folder / f"bundle_{len(list(self.folder.iterdir()))}"
        export(model, path, [self.format], progress=False, **arguments)
        return load(path, backend=self.format)

    def proven(self, model, *calls, limit=1e-4, **arguments):
        """Exports a model, and compares the bundle with it on the inputs of each call. Returns the bundle."""
        bundle = self.export(model, **arguments)
        for inputs in calls:
            expected = model(keras.tree.map_structure(tf.constant, inputs), training=False)
            check(bundle(inputs), expected, limit)
        return bundle

    def refused(self, model, remedy, error=ExportError, **arguments):
        """Raises unless the export of a model is refused by an error that names the remedy."""
        try:
            self.export(model, **arguments)
        except error as raised:
            text = in_one_line(raised)
            assert remedy in text, f"the remedy is not in: {text}"
            self.refusals.append(text)
            return
        raise AssertionError("it was not refused")


def check(found, expected, limit=1e-4):
    """Raises unless the outputs of a bundle are those of a model, within a share of their scale."""
    expected = [np.asarray(each) for each in keras.tree.flatten(dict_in_order(expected))]
    for one, other in zip(found.values(), expected, strict=True):
        assert one.shape == other.shape, f"shape {one.shape} in place of {other.shape}"
        if other.dtype.kind in "OSU":
            other = np.array([each.decode() for each in other.ravel()]).reshape(other.shape)
            assert (one == other).all(), f"{one} in place of {other}"
            continue
        scale = max(float(np.abs(np.nan_to_num(other.astype("float64"))).max(initial=0)), 1e-6)
        np.testing.assert_allclose(one.astype("float64"), other.astype("float64"), rtol=limit, atol=limit * scale)


def dict_in_order(outputs):
    """The values of a dict in its own order: Keras flattens dicts by their sorted keys."""
    return list(outputs.values()) if isinstance(outputs, dict) else outputs


def fitted(model, inputs, targets, loss="mse"):
    """The model after a few steps of `fit`."""
    model.compile(keras.optimizers.Adam(1e-2), loss)
    model.fit(inputs, targets, batch_size=16, verbose=0)
    return model
