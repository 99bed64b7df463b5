"""Prefill and decode steps of a language model in TensorFlow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from keras_transformer.export.runtime.generation_steps import RuntimeSteps
from keras_transformer.export.saved_model.process import check_process
from keras_transformer.export.saved_model.runtime import load_saved_model
from keras_transformer.utils.types import Cache

if TYPE_CHECKING:
    import numpy as np


class SavedModelSteps(RuntimeSteps):
    """Steps in TensorFlow; the cache stays in its tensors. See `RuntimeSteps`."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._loaded = load_saved_model(str(self._path("prefill")), self._num_threads)

    def _call(self, signature: str, arrays: dict[str, np.ndarray], cache: Cache) -> dict[str, np.ndarray]:
        check_process()
        import tensorflow as tf

        tensors = {name: tf.convert_to_tensor(array) for name, array in {**arrays, **cache}.items()}
        return self._loaded.signatures[signature](**tensors)
