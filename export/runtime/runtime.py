"""The contract of a runtime: one signature of a file, ready to compute."""

from typing import Protocol

import numpy as np

from keras_transformer.export.data.manifest_records import FileNames


class Runtime(Protocol):
    """One signature of an artifact in its runtime. Several threads may call it at once.

    Call arguments:
        arrays: dict of input name to numpy array, already checked.

    Returns:
        Dict of output name to numpy array.
    """

    def __call__(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]: ...


def named_runtime(runtime: Runtime, names: FileNames) -> Runtime:
    """A runtime that is called with the names of a signature, and calls the file with those of the file.

    Args:
        runtime: `Runtime` under the names of the file.
        names: `FileNames`.
    """
    if all(key == value for side in names for key, value in side.items()):
        return runtime

    def renamed(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        results = runtime({names.inputs[name]: array for name, array in arrays.items()})
        return {name: results[label] for name, label in names.outputs.items()}

    return renamed
