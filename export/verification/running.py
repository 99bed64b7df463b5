"""Files in their own runtime: opened, run on a probe and timed; a failure to open or to run one is a `ParityError`."""

import pathlib
import statistics
import time
from collections.abc import Mapping

import numpy as np

from keras_transformer.export.data.export_spec import Probe
from keras_transformer.export.data.manifest import Manifest
from keras_transformer.export.errors import ExportError, ParityError
from keras_transformer.export.loading.load import open_artifact
from keras_transformer.export.runtime.runtime_model import RuntimeModel
from keras_transformer.utils.errors import library_exceptions

_MOST_CALLS, _FEWEST_CALLS = 10, 3
_SECONDS = 0.5


def opened(
    directory: pathlib.Path, manifest: Manifest, format: str, signature: str, tolerance: float = 0.0
) -> RuntimeModel:
    """One signature of an artifact; `tolerance` is what the error names."""
    try:
        return open_artifact(directory, manifest, format, signature)
    except library_exceptions() as error:
        raise ParityError(
            format, "*", "loading", np.nan, 1.0, tolerance, f"cannot be loaded: {_line(error)}"
        ) from error


def results_on(model: RuntimeModel, format: str, probe: Probe, tolerance: float = 0.0) -> dict[str, np.ndarray]:
    """The outputs of a runtime on a probe, of the names that the Keras model has."""

    def error_of(output: str, detail: str) -> ParityError:
        return ParityError(format, output, probe.label, np.nan, 1.0, tolerance, detail)

    try:
        results = model(probe.inputs)
    except library_exceptions(ExportError) as error:
        raise error_of("*", f"cannot be computed: {_line(error)}") from error
    if set(results) != set(probe.outputs):
        raise error_of(str(sorted(results)), f"is not the Keras model's {sorted(probe.outputs)}")
    return results


def milliseconds(model: RuntimeModel, inputs: Mapping[str, np.ndarray]) -> float:
    """The median time of a call in milliseconds, after the calls of the comparison; of fewer calls if they are long."""
    seconds: list[float] = []
    while len(seconds) < _FEWEST_CALLS or (len(seconds) < _MOST_CALLS and sum(seconds) < _SECONDS):
        start = time.perf_counter()
        model(inputs)
        seconds.append(time.perf_counter() - start)
    return 1000 * statistics.median(seconds)


def _line(error: Exception) -> str:
    """An error of a runtime in one line. It may begin with an empty one, and names of a file may contain more."""
    return " ".join(str(error).split())[:300]
