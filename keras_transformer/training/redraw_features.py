"""Random features that do not stay the same while a model trains."""

import keras

from keras_transformer.attention.arguments import positive
from keras_transformer.attention.random_features import RandomFeatures
from keras_transformer.backend import keras_private


class RedrawFeatures(keras.callbacks.Callback):
    """Draws the random features of every `PerformerAttention` anew, every few steps of training.

    Args:
        every_steps: int >= 1. Default 1000, as in the authors' experiments.

    Raises:
        ValueError: `every_steps` below 1; or, at the start of training, a model without random features.

    Example:

    >>> RedrawFeatures(every_steps=500).every_steps
    500

    Reference: Choromanski et al., arXiv 2009.14794 (features are redrawn against an unlucky draw).
    """

    def __init__(self, every_steps=1000):
        super().__init__()
        self.every_steps = positive("every_steps", every_steps)
        self._steps = 0

    def on_train_begin(self, logs=None):
        if not self._features():
            raise ValueError("RedrawFeatures found no random features: the model has no PerformerAttention.")

    def on_train_batch_end(self, batch, logs=None):
        self._steps += 1
        if self._steps % self.every_steps:
            return
        if hasattr(self.model, "jax_state_sync"):  # On JAX the weights lie outside the model while it trains.
            self.model.jax_state_sync()
        for features in self._features():
            features.redraw()

    def _features(self):
        return [layer for layer in keras_private.flatten_layers(self.model) if isinstance(layer, RandomFeatures)]
