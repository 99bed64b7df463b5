"""Comparison of a classifier in Keras and in each runtime: size, accuracy, speed and difference."""

from __future__ import annotations

import pathlib
import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from keras_transformer.export.bundle.manifest import read_manifest
from keras_transformer.export.data.report import readable_size
from keras_transformer.export.data.tables import Part, Table, plain
from keras_transformer.export.errors import ExportError
from keras_transformer.export.loading.load import load
from keras_transformer.utils.types import Path

if TYPE_CHECKING:
    import keras

    from keras_transformer.export.runtime.runtime_model import RuntimeModel


_BATCH, _ONE, _FEW = 256, 1, 32


class Entry(NamedTuple):
    """Measurements of one format.

    Args:
        name: "keras", or the name of the format.
        size: bytes on disk.
        accuracy: share of correctly classified examples.
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
    """The entries of all formats, Keras first; `str()` is a table.

    Args:
        entries: list of `Entry`.
        examples: number of examples for the accuracy and the difference.
    """

    entries: list[Entry]
    examples: int

    def __str__(self) -> str:
        return plain(self.parts())

    def parts(self) -> list[Part]:
        """Returns what is printed: a table, and what its figures are."""
        head = ("format", "size", "test accuracy", "1 example", f"{_FEW} examples", "from Keras")
        rows = []
        for entry in self.entries:
            difference = "-" if entry.name == "keras" else f"{entry.difference:.1e}"
            times = (f"{entry.one:.2f} ms", f"{entry.few:.2f} ms")
            rows.append((entry.name, readable_size(entry.size), f"{entry.accuracy:.2%}", *times, difference))
        notes = f"{self.examples:,} test examples; median times of a call; largest difference of an output from Keras"
        return [Table(head, rows, texts=("format",)), notes]


def compare(model: keras.Model, model_path: Path, bundle: Path, inputs: np.ndarray, labels: np.ndarray) -> Comparison:
    """Runs a classifier on the same examples in Keras and in every runtime of its bundle.

    Args:
        model: `keras.Model` with one input and one output `(B, classes)`.
        model_path: the `.keras` file, for its size.
        bundle: path of the bundle of the model.
        inputs: float32 `(n, ...)`.
        labels: int `(n,)`.

    Returns:
        A `Comparison`.

    Raises:
        ExportError: a runtime returns a value that is not finite.
        InvalidBundleError: the bundle is incomplete.
    """
    expected = _in_batches(model.predict_on_batch, inputs)
    size = pathlib.Path(model_path).stat().st_size
    entries = [_measure("keras", size, model.predict_on_batch, inputs, labels, expected)]
    for name, artifact in read_manifest(bundle).artifacts.items():
        entries.append(_measure(name, artifact.size, _only_output(bundle, name), inputs, labels, expected))
    return Comparison(entries, len(labels))


def _only_output(bundle: Path, name: str) -> Callable[[np.ndarray], np.ndarray]:
    loaded: RuntimeModel = load(bundle, name)

    def call(batch):
        (output,) = loaded(batch).values()
        return output

    return call


def _in_batches(call: Callable[[np.ndarray], np.ndarray], inputs: np.ndarray) -> np.ndarray:
    return np.concatenate([call(inputs[start : start + _BATCH]) for start in range(0, len(inputs), _BATCH)])


def _measure(
    name: str,
    size: int,
    call: Callable[[np.ndarray], np.ndarray],
    inputs: np.ndarray,
    labels: np.ndarray,
    expected: np.ndarray,
) -> Entry:
    found = _in_batches(call, inputs)
    if not np.isfinite(found).all():
        raise ExportError(f"{name} returns values that are not finite")
    accuracy = float((found.argmax(axis=-1) == labels).mean())
    difference = float(np.abs(found - expected).max())
    one, few = (_milliseconds(call, inputs[:count]) for count in (_ONE, _FEW))
    return Entry(name, size, accuracy, one, few, difference)


def _milliseconds(call: Callable[[np.ndarray], np.ndarray], inputs: np.ndarray, times: int = 40) -> float:
    """The median time of a call, without the first three calls of a shape."""
    seconds = []
    for index in range(times + 3):
        start = time.perf_counter()
        call(inputs)
        if index >= 3:
            seconds.append(time.perf_counter() - start)
    return 1000 * statistics.median(seconds)
