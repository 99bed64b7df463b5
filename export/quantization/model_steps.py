"""Prefill and decode steps of the Keras model itself, as an export reads it."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformer.export.data.export_spec import ExportSpec
from keras_transformer.export.data.manifest import Manifest
from keras_transformer.export.runtime.generation_steps import RuntimeSteps
from keras_transformer.export.runtime.precision import full_precision
from keras_transformer.utils.types import Cache


class ModelSteps(RuntimeSteps):
    """Steps of a model by the functions of its signatures, which are called without a graph. See `RuntimeSteps`.

    Args:
        spec: the `ExportSpec` of a language model.
        manifest: the manifest of a bundle with its signatures.
    """

    def __init__(self, spec: ExportSpec, manifest: Manifest) -> None:
        super().__init__(pathlib.Path(), manifest, "Keras", num_threads=1)
        self._signatures = spec.signatures

    def _call(self, signature: str, arrays: dict[str, Any], cache: Cache) -> dict[str, Any]:
        tensors = {name: tf.convert_to_tensor(array) for name, array in {**cache, **arrays}.items()}
        with full_precision():
            return self._signatures[signature].function(tensors)

    def _array(self, array: np.ndarray) -> Any:
        return tf.convert_to_tensor(array)
