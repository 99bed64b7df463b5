"""Learning rates by layer depth."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import keras
from keras import ops

from keras_transformer.backend import keras_private
from keras_transformer.backend.gradients.vjp import not_before
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, Tensor


@serializable
class LayerwiseAdamW(keras.optimizers.AdamW):
    """AdamW with a multiplier on the learning rate of each weight, decay included: discriminative fine-tuning.

    Args:
        learning_rate: float, or a schedule. Rate of weights that no pattern matches. Default 1e-3.
        multipliers: dict of regular expression, searched in the path of a weight, to float >= 0. The first match applies.
            0 freezes the weight. See `layerwise_decay`.
        **options: those of `keras.optimizers.AdamW`.

    Raises:
        ValueError: a multiplier below 0.

    Example:

    >>> optimizer = LayerwiseAdamW(1e-3, multipliers={"embedding": 0.0, "encoder_block_0/": 0.5})
    >>> optimizer.multipliers["embedding"]
    0.0

    Reference: Howard and Ruder, ULMFiT, arXiv 1801.06146, equation 2; Clark et al., ELECTRA, arXiv 2003.10555, table 7
    (layerwise decay).
    """

    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 1e-3,
        multipliers: Mapping[str, float] | None = None,
        **options: object,
    ) -> None:
        super().__init__(learning_rate, **options)
        self.multipliers = dict(multipliers or {})
        below = {name: value for name, value in self.multipliers.items() if not value >= 0}
        if below:
            raise ValueError(f"A multiplier must be at least 0. Received: {below}")

    def build(self, variables: Sequence[keras.Variable]) -> None:
        if not self.built:
            self._rates = [self._multiplier(variable.path) for variable in variables]
        super().build(variables)

    def _multiplier(self, path):
        return next((value for pattern, value in self.multipliers.items() if re.search(pattern, path)), 1.0)

    def update_step(self, gradient: Tensor, variable: keras.Variable, learning_rate: Tensor) -> None:
        rate = ops.multiply(learning_rate, self._rates[keras_private.variable_index(self, variable)])
        if self.weight_decay is not None and self._use_weight_decay(variable):
            # After the gradient: TensorFlow copies a weight that changes while the step still reads it.
            decay = not_before(gradient, ops.cast(rate * self.weight_decay, variable.dtype))
            self.assign_sub(variable, decay * variable)
        super().update_step(gradient, variable, rate)

    def _apply_weight_decay(self, variables):
        """Does nothing: `update_step` applies the decay with the rate of each weight."""

    def get_config(self) -> Config:
        return {**super().get_config(), "multipliers": self.multipliers}


def layerwise_decay(model: keras.Model, decay: float = 0.9) -> dict[str, float]:
    """Returns multipliers that decrease by the same factor from each block of a model to the one below it.

    The multiplier is 1 for a head, `decay` for the last of L blocks, `decay**L` for the first, and `decay**(L + 1)` for
    embeddings.

    Args:
        model: `keras.Model` with blocks named "..._block_0" and so on.
        decay: float in (0, 1].

    Returns:
        dict of regular expression to float, for `LayerwiseAdamW`.

    Raises:
        ValueError: the model has no such blocks; `decay` is out of its range.

    Example:

    >>> from keras_transformer import models
    >>> layerwise_decay(models.Encoder(models.Size(2, 8, 2, 16), vocabulary_size=50), decay=0.5)
    {'_block_0/': 0.25, '_block_1/': 0.5, 'embedding': 0.125}
    """
    if not 0 < decay <= 1:
        raise ValueError(f"decay must be in (0, 1]. Received: {decay}")
    numbers = [int(found[1]) for layer in model.layers if (found := re.search(r"_block_(\d+)$", layer.name))]
    if not numbers:
        raise ValueError(f"{model.name!r} has no blocks.")
    count = max(numbers) + 1
    blocks = {f"_block_{number}/": decay ** (count - number) for number in range(count)}
    return {**blocks, "embedding": decay ** (count + 1)}
