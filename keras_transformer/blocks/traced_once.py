"""What TensorFlow traces once in the training step of a model, and Keras several times."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from keras_transformer.backend.compilation.first_step import build_optimizer
from keras_transformer.blocks.equal_blocks import equal_blocks_traced_once
from keras_transformer.utils.types import Logs

if TYPE_CHECKING:
    from keras import Model as Base
else:
    Base = object


class TracedOnce(Base):
    """Mixin of a `keras.Model` whose training step is traced once, with one function for all equal blocks.

    The first step takes a part of the time, and its graph a part of the memory; the values are the same. See
    `backend.first_step` and `equal_blocks_traced_once`.

    Example:

    >>> import keras
    >>> class Net(TracedOnce, keras.Model):
    ...     pass
    >>> inputs = keras.Input((2,))
    >>> Net(inputs, keras.layers.Dense(3)(inputs)).output_shape
    (None, 3)
    """

    def make_train_function(self, force: bool = False) -> Callable[..., Logs]:
        """Builds the optimizer first."""
        build_optimizer(self)
        return super().make_train_function(force)

    def train_step(self, *args: object, **kwargs: object) -> Logs:
        """The step of `keras.Model`, whose arguments depend on the backend."""
        with equal_blocks_traced_once(self):
            return super().train_step(*args, **kwargs)
