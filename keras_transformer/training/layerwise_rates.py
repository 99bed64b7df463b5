"""A learning rate of its own for each depth of a model."""

import re

import keras
from keras import ops

from keras_transformer.backend import keras_private
from keras_transformer.utils.serialization import serializable


@serializable
class LayerwiseAdamW(keras.optimizers.AdamW):
    """AdamW that multiplies the rate of each weight, decay included: discriminative fine-tuning.

    Args:
        learning_rate: float, or a schedule. Of a weight that no pattern matches.
        multipliers: dict of a regular expression, searched in the path of a weight, to a float >= 0; the first that matches
            counts. `layerwise_decay` makes one. 0 leaves the weight as it is.
        **options: those of `keras.optimizers.AdamW`.

    Raises:
        ValueError: a multiplier below 0.

    Example:

    >>> optimizer = LayerwiseAdamW(1e-3, multipliers={"embedding": 0.0, "encoder_block_0/": 0.5})

    Reference: Howard and Ruder, ULMFiT, arXiv 1801.06146, equation 2; Clark et al., ELECTRA, arXiv 2003.10555, table 7
    (a decay for each layer).
    """

    def __init__(self, learning_rate=1e-3, multipliers=None, **options):
        super().__init__(learning_rate, **options)
        self.multipliers = dict(multipliers or {})
        below = {name: value for name, value in self.multipliers.items() if not value >= 0}
        if below:
            raise ValueError(f"A multiplier must be at least 0. Received: {below}")

    def build(self, variables):
        if not self.built:
            self._rates = [self._multiplier(variable.path) for variable in variables]
        super().build(variables)

    def _multiplier(self, path):
        return next((value for pattern, value in self.multipliers.items() if re.search(pattern, path)), 1.0)

    def update_step(self, gradient, variable, learning_rate):
        rate = ops.multiply(learning_rate, self._rates[keras_private.variable_index(self, variable)])
        if self.weight_decay is not None and self._use_weight_decay(variable):
            self.assign_sub(variable, ops.cast(rate * self.weight_decay, variable.dtype) * variable)
        super().update_step(gradient, variable, rate)

    def _apply_weight_decay(self, variables):
        """Done by `update_step`, at the rate of each weight."""

    def get_config(self):
        return {**super().get_config(), "multipliers": self.multipliers}


def layerwise_decay(model, decay=0.9):
    """Multipliers that fall by the same factor from each block of a model to the one below it.

    A head has 1, the last of L blocks `decay`, the first `decay**L`, embeddings `decay**(L + 1)`.

    Args:
        model: `keras.Model` with blocks named "..._block_0" and so on.
        decay: float in (0, 1].

    Returns:
        dict of regular expression to float, for `LayerwiseAdamW`.

    Raises:
        ValueError: no such blocks; a decay out of its range.

    Example:

    >>> from keras_transformer import models
    >>> layerwise_decay(models.Encoder(models.Size(2, 8, 2, 16), vocabulary_size=50), decay=0.5)
    {'_block_0/': 0.25, '_block_1/': 0.5, 'embedding': 0.125}
    """
    if not 0 < decay <= 1:
        raise ValueError(f"decay must lie in (0, 1]. Received: {decay}")
    numbers = [int(found[1]) for layer in model.layers if (found := re.search(r"_block_(\d+)$", layer.name))]
    if not numbers:
        raise ValueError(f"{model.name!r} has no blocks.")
    count = max(numbers) + 1
    blocks = {f"_block_{number}/": decay ** (count - number) for number in range(count)}
    return {**blocks, "embedding": decay ** (count + 1)}
