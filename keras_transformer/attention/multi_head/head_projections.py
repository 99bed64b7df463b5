"""The linear projections of multi-head attention: tokens to heads, and heads to the output."""

from __future__ import annotations

import keras

from keras_transformer.layers.projection import Projection
from keras_transformer.utils.types import Activation, Config, DType, Shape

_KINDS = {"initializer": keras.initializers, "regularizer": keras.regularizers, "constraint": keras.constraints}


class HeadProjections:
    """Creates the projections of `MultiHeadAttention`, all with the same options.

    Args:
        use_bias: bool. Whether the projections have biases.
        use_key_bias: bool, or None for `use_bias`. Whether the key projection has a bias.
        use_value_bias: bool, or None for `use_bias`. Whether the value projection has a bias.
        use_output_bias: bool, or None for `use_bias`. Whether the output projection has a bias.
        **options: initializers, regularizers and constraints of `keras.layers.EinsumDense`.
    """

    def __init__(
        self,
        use_bias: bool,
        use_key_bias: bool | None = None,
        use_value_bias: bool | None = None,
        use_output_bias: bool | None = None,
        **options: object,
    ) -> None:
        self.use_bias = use_bias
        self._own_bias = {"key": use_key_bias, "value": use_value_bias, "attention_output": use_output_bias}
        self._options = {name: _kind(name).get(option) for name, option in options.items()}

    def split_heads(
        self, name: str, input_shape: Shape, heads_shape: Shape, dtype: DType, activation: Activation = None
    ) -> Projection:
        """Returns the built projection of tokens `(B, T, D)` to heads of shape `(B, T, N, H)`."""
        return self._create(name, "btd,dnh->btnh", input_shape, heads_shape[2:], dtype, activation)

    def join_heads(self, name: str, heads_shape: Shape, output_shape: Shape, dtype: DType) -> Projection:
        """Returns the built projection of heads `(B, T, N, H)` to an output vector of any rank for each token."""
        axes = "defg"[: len(output_shape)]
        return self._create(name, f"btnh,nh{axes}->bt{axes}", heads_shape, output_shape, dtype)

    def _create(self, name, equation, input_shape, output_shape, dtype, activation=None):
        own = self._own_bias.get(name)
        has_bias = self.use_bias if own is None else own
        # A shared initializer would make equal weights.
        options = {name: each.clone() if name.endswith("initializer") else each for name, each in self._options.items()}
        projection = Projection(
            equation,
            output_shape=(None, *output_shape),
            bias_axes=equation.rpartition("->bt")[2] if has_bias else None,
            activation=activation,
            name=name,
            dtype=dtype,
            **options,
        )
        projection.build(input_shape)
        return projection

    def get_config(self) -> Config:
        """Returns the arguments, serialized."""
        return {
            "use_bias": self.use_bias,
            "use_key_bias": self._own_bias["key"],
            "use_value_bias": self._own_bias["value"],
            "use_output_bias": self._own_bias["attention_output"],
            **{name: _kind(name).serialize(option) for name, option in self._options.items()},
        }


def _kind(name):
    return _KINDS[name.rpartition("_")[2]]
