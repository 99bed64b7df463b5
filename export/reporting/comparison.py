"""A classifier in Keras and in each runtime, side by side: size, accuracy, speed and difference."""

import pathlib
import statistics
import time
from typing import NamedTuple

import numpy as np

from keras_transformer.export.bundle.manifest import read_manifest
from keras_transformer.export.errors import ExportError
from keras_transformer.export.reporting.report import fixed_width, readable_size
from keras_transformer.export.runtime.loading import load

_BATCH, _ONE, _FEW = 256, 1, 32


class Entry(NamedTuple):
    """What was measured of one format.

    Args:
        name: "keras", or the name of the format.
        size: bytes on disk.
        accuracy: share of the examples whose most probable class is the right one.
        one: median milliseconds of a call with one example.
        few: median milliseconds of a call with 32 examples.
        difference: largest absolute difference of an output from that of Keras.
    """

    name: str
    size: int
    accuracy: float
    one: float
    few: float
    difference: float


class Comparison(NamedTuple):
    """Entries, that of Keras first; `str()` is a table.

    Args:
        entries: list of `Entry`.
        examples: how many examples the accuracy and the difference are of.
    """

    entries: list
    examples: int

    def __str__(self):
        rows = [("format", "size", "test accuracy", "1 example", f"{_FEW} examples", "from Keras")]
        for entry in self.entries:
            difference = "-" if entry.name == "keras" else f"{entry.difference:.1e}"
            times = (f"{entry.one:.2f} ms", f"{entry.few:.2f} ms")
            rows.append((entry.name, readable_size(entry.size), f"{entry.accuracy:.2%}", *times, difference))
        notes = f"{self.examples:,} test examples; median times of a call; largest difference of an output from Keras"
        return f"{fixed_width(rows)}\n{notes}"


def compare(model, model_path, bundle, inputs, labels):
    """Runs a classifier on the same examples in Keras and in every runtime that its bundle has a file for.

    Args:
        model: `keras.Model` with one input and one output `(B, classes)`.
        model_path: the `.keras` file, for its size.
        bundle: path of the bundle that `export` has made of the model.
        inputs: float32 `(n, ...)`.
        labels: int `(n,)`.

    Returns:
        A `Comparison`.

    Raises:
        ExportError: a runtime gives a value that is not finite.
        InvalidBundleError: the bundle is incomplete.
    """
    expected = _in_batches(model.predict_on_batch, inputs)
    size = pathlib.Path(model_path).stat().st_size
    entries = [_measure("keras", size, model.predict_on_batch, inputs, labels, expected)]
    for name, artifact in read_manifest(bundle)["artifacts"].items():
        entries.append(_measure(name, artifact["bytes"], _only_output(bundle, name), inputs, labels, expected))
    return Comparison(entries, len(labels))


def _only_output(bundle, name):
    loaded = load(bundle, name)

    def call(batch):
        (output,) = loaded(batch).values()
        return output

    return call


def _in_batches(call, inputs):
    return np.concatenate([call(inputs[start : start + _BATCH]) for start in range(0, len(inputs), _BATCH)])


def _measure(name, size, call, inputs, labels, expected):
    found = _in_batches(call, inputs)
    if not np.isfinite(found).all():
        raise ExportError(f"{name} gives values that are not finite")
    accuracy = float((found.argmax(axis=-1) == labels).mean())
    difference = float(np.abs(found - expected).max())
    one, few = (_milliseconds(call, inputs[:count]) for count in (_ONE, _FEW))
    return Entry(name, size, accuracy, one, few, difference)


def _milliseconds(call, inputs, times=40):
    """The median time of a call; the first calls of a shape, which prepare the others, are not counted."""
    seconds = []
    for index in range(times + 3):
        start = time.perf_counter()
        call(inputs)
        if index >= 3:
            seconds.append(time.perf_counter() - start)
    return 1000 * statistics.median(seconds)
