"""AdamW whose update of a weight is one kernel."""

from __future__ import annotations

import contextvars
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import keras

from keras_transformer.backend import keras_private
from keras_transformer.backend.gradients.vjp import not_before
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import DType, Tensor

if TYPE_CHECKING:
    import tensorflow as tf

# Within `apply`: the scalars of an update, by dtype and graph.
_scalars: contextvars.ContextVar[dict[Any, Any] | None] = contextvars.ContextVar("scalars", default=None)


@serializable
class FusedAdamW(keras.optimizers.AdamW):
    """`keras.optimizers.AdamW` that updates a weight and its moments in one kernel of TensorFlow.

        m <- beta_1 m + (1 - beta_1) g,    v <- beta_2 v + (1 - beta_2) g²
        w <- w - rate · weight_decay · w
        w <- w - rate · sqrt(1 - beta_2^t) / (1 - beta_1^t) · m / (sqrt(v) + epsilon)

    Keras writes an update as some 45 operations of TensorFlow, which read and write each moment several times where XLA
    does not fuse them, and which make up half of the graph of a model with many small weights, such as adapters. On other
    backends, with `amsgrad` and under `tf.distribute` with several replicas it is `keras.optimizers.AdamW`. Its variables
    are the same in number, order and meaning: a checkpoint of one continues with the other.

    Args: those of `keras.optimizers.AdamW`.

    Example:

    >>> import numpy as np
    >>> weight = keras.Variable(np.array([1.0, 2.0]))
    >>> optimizer = FusedAdamW(learning_rate=0.5, weight_decay=0.0)
    >>> optimizer.apply([keras.ops.array([3.0, -4.0])], [weight])
    >>> weight.numpy().round(3).tolist()  # The first step of Adam is the rate times the sign of the gradient.
    [0.5, 2.5]

    Reference: Loshchilov and Hutter, arXiv 1711.05101, algorithm 2; epsilon as in Kingma and Ba, arXiv 1412.6980, section
    2, in the form before algorithm 1 (as Keras and TensorFlow have it). Keras 3.15 on TensorFlow squares the gradients of
    a token that a batch repeats one by one; here, as on JAX, their sum is squared.
    """

    def apply(
        self, grads: Sequence[Tensor | None], trainable_variables: Sequence[keras.Variable] | None = None
    ) -> None:
        token = _scalars.set({})
        try:
            super().apply(grads, trainable_variables)
        finally:
            _scalars.reset(token)

    def update_step(self, gradient: Tensor, variable: keras.Variable, learning_rate: Tensor) -> None:
        if not self._has_kernel():
            super().update_step(gradient, variable, learning_rate)
            return
        import tensorflow as tf

        dtype, index = tf.as_dtype(variable.dtype), keras_private.variable_index(self, variable)
        rate = tf.cast(learning_rate, dtype)
        gradient = tf.cast(tf.convert_to_tensor(gradient), dtype)  # That of a lookup is sparse.
        if self.weight_decay and self._use_weight_decay(variable):
            # After the gradient: TensorFlow copies a weight that changes while the step still reads it.
            decay = not_before(gradient, rate * tf.cast(self.weight_decay, dtype))
            self.assign_sub(variable, decay * variable)
        tf.raw_ops.ResourceApplyAdam(
            var=_handle(variable),
            m=_handle(self._momentums[index]),
            v=_handle(self._velocities[index]),
            lr=rate,
            grad=gradient,
            **self._scalars_of(dtype),
        )

    def _scalars_of(self, dtype: DType) -> dict[str, object]:
        """Returns what the kernel takes for each weight: the graph of an update has it once."""
        import tensorflow as tf

        known = _scalars.get()
        known = {} if known is None else known
        key = dtype, None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
        if key not in known:
            step = tf.cast(self.iterations + 1, dtype)
            betas = [tf.constant(beta, dtype) for beta in (self.beta_1, self.beta_2)]
            powers = [tf.pow(beta, step) for beta in betas]
            names = ("beta1", "beta2", "beta1_power", "beta2_power", "epsilon")
            known[key] = dict(zip(names, (*betas, *powers, tf.constant(self.epsilon, dtype)), strict=True))
        return known[key]

    def _apply_weight_decay(self, variables: Sequence[keras.Variable]) -> None:
        # Keras multiplies each weight by 0 otherwise.
        if self.weight_decay and not self._has_kernel():
            super()._apply_weight_decay(variables)

    def _has_kernel(self) -> bool:
        if keras.backend.backend() != "tensorflow" or self.amsgrad:
            return False
        import tensorflow as tf

        return tf.distribute.get_strategy().num_replicas_in_sync == 1


def _handle(variable: keras.Variable) -> tf.Tensor:
    """Returns the resource of a variable of Keras, or of the one of TensorFlow that its optimizers are handed."""
    return (variable.value if isinstance(variable, keras.Variable) else variable).handle
