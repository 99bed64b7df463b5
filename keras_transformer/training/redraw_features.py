"""Redrawing of Performer's random features during training."""

from __future__ import annotations

import keras

from keras_transformer.attention.arguments import positive
from keras_transformer.attention.kernel_features.random_features import RandomFeatures
from keras_transformer.backend import keras_private
from keras_transformer.utils.types import Logs


class RedrawFeatures(keras.callbacks.Callback):
    """Callback that redraws the random features of every `PerformerAttention` at intervals during training.

    Args:
        every_steps: int >= 1. Interval in training steps. Default 1000, as in the authors' experiments.

    Raises:
        ValueError: `every_steps` below 1; or, at the start of training, a model without random features.

    Example:

    >>> RedrawFeatures(every_steps=500).every_steps
    500

    Reference: Choromanski et al., arXiv 2009.14794 (features are redrawn to avoid the effect of a bad draw).
    """

    def __init__(self, every_steps: int = 1000) -> None:
        super().__init__()
        self.every_steps = positive("every_steps", every_steps)
        self._steps = 0

    def on_train_begin(self, logs: Logs | None = None) -> None:
        if not self._features():
            raise ValueError("RedrawFeatures found no random features: the model has no PerformerAttention.")

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        self._steps += 1
        if self._steps % self.every_steps:
            return
        if hasattr(self.model, "jax_state_sync"):  # JAX keeps the weights outside the model during training.
            self.model.jax_state_sync()
        for features in self._features():
            features.redraw()

    def _features(self):
        return [layer for layer in keras_private.flatten_layers(self.model) if isinstance(layer, RandomFeatures)]
