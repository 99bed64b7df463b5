"""The names of the formats, and the Python libraries that their runtimes need."""

import contextlib
import importlib.util
from collections.abc import Iterator
from importlib import metadata
from typing import NamedTuple

from keras_transformer.export.errors import MissingLibraryError


class Library(NamedTuple):
    """A Python library that may be missing.

    Args:
        module: name by which it is imported.
        distribution: name by which pip installs it.
    """

    module: str
    distribution: str

    @contextlib.contextmanager
    def required_by(self, user: str) -> Iterator[None]:
        """A context in which a failed import of the library raises `MissingLibraryError`.

        Args:
            user: what needs the library, for the error.
        """
        try:
            yield
        except ModuleNotFoundError as error:
            if (error.name or "").split(".")[0] != self.module:
                raise
            raise MissingLibraryError(user, self.distribution) from error

    @property
    def is_installed(self) -> bool:
        """Whether the library can be imported. Imports nothing."""
        return importlib.util.find_spec(self.module) is not None

    @property
    def version(self) -> str | None:
        """Version of the installed distribution, or None."""
        return installed_version(self.distribution)


SAVED_MODEL, TFLITE, ONNX = "saved_model", "tflite", "onnx"
TENSORFLOW = Library("tensorflow", "tensorflow")
LITERT = Library("ai_edge_litert", "ai-edge-litert")
ONNX_RUNTIME = Library("onnxruntime", "onnxruntime")


def require_keras(user: str) -> None:
    """Imports Keras and its backend.

    Args:
        user: what needs Keras, for the error.

    Raises:
        MissingLibraryError: Keras, or TensorFlow as its backend, is not installed.
    """
    with Library("keras", "keras").required_by(user), TENSORFLOW.required_by(user):
        import keras  # noqa: F401


def installed_version(distribution: str) -> str | None:
    """Version of a distribution, or None where it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
