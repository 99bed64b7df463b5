"""Residual schemes: where a block normalizes, and how it adds the output of a sublayer to its input.

A scheme has parts around a sublayer f: `h = scheme.pre(x)`, `y = f(h)`, then `x = scheme.post(scheme.skip(x, h), y)`.
"""

from __future__ import annotations

from typing import Unpack

import keras

from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.norms import NORMS
from keras_transformer.utils.serialization import clone, resolve, serializable, serialize
from keras_transformer.utils.types import Config, LayerLike, LayerOptions, Shape, Tensor


@serializable
class Residual(keras.layers.Layer):
    """Base of the residual schemes: `x + f(x)`.

    Args:
        norm: a name in `NORMS`, or a norm layer to copy.
        stochastic_depth: float in [0, 1). In training, the fraction of rows in which f(x) is dropped; in the other rows it
            is scaled by `1 / (1 - stochastic_depth)`.
        seed: int or None. Seed of the stochastic depth.

    To write a scheme: override `pre`, `post` and, where the sum is not with x, `skip`; list its norms in `_norm_names`, and
    set `needs_final_norm` if a stack of such blocks should end with a norm because its sum is never normalized. Override
    `initialize_sublayer` to change the initial weights of a sublayer, and `num_streams`, `stack_input_layer` and
    `stack_output_layer` for several streams. If `takes_condition` is set, blocks call `pre` and `post` with `condition`: see
    `AdaLNZeroResidual`.

    Example:

    >>> import numpy as np
    >>> Residual().post(np.array([[[1.0, 3.0]]]), np.array([[[0.0, 2.0]]])).tolist()
    [[[1.0, 5.0]]]

    Reference: He et al., arXiv 1512.03385; Huang et al., Deep Networks with Stochastic Depth, arXiv 1603.09382.
    """

    _norm_names: tuple[str, ...] = ()
    needs_final_norm: bool = True
    num_streams: int = 1
    takes_condition: bool = False

    def __init__(
        self,
        norm: LayerLike = "layer_norm",
        stochastic_depth: float = 0.0,
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.norm = norm if isinstance(norm, str) else resolve(norm, NORMS, keras.layers.Layer, argument="norm")
        template = resolve(norm, NORMS, keras.layers.Layer, argument="norm")
        self.norms = {name: clone(template, name=name, dtype=self.dtype_policy) for name in self._norm_names}
        self.stochastic_depth = stochastic_depth
        self.seed = seed
        row_noise = (None, 1, 1)
        self._drop_rows = Dropout(stochastic_depth, noise_shape=row_noise, seed=seed, dtype=self.dtype_policy)

    def build(self, input_shape: Shape) -> None:
        # Tokens `(B, T, D)`, or those of a grid, `(B, rows, columns, D)`.
        self._drop_rows.noise_shape = (None, *(1,) * (len(input_shape) - 1))
        for norm in self.norms.values():
            norm.build(input_shape)

    def pre(self, x: Tensor, mask: Tensor | None = None, training: bool | None = None) -> Tensor:
        """Returns the input of the sublayer, `(B, T, D)`."""
        return x

    def skip(self, x: Tensor, h: Tensor) -> Tensor:
        """Returns what the sublayer's output is combined with, `(B, T, D)`: x, or the input h of the sublayer."""
        return x

    def post(self, x: Tensor, y: Tensor, mask: Tensor | None = None, training: bool | None = None) -> Tensor:
        """Combines the result x of `skip` and the sublayer's output y, `(B, T, D)`."""
        return x + y

    def drop_path(self, y: Tensor, training: bool | None = None) -> Tensor:
        """Stochastic depth: in training, sets the sublayer's output `(B, T, D)` to zero in random rows."""
        return self._drop_rows(y, training=training)

    def initialize_sublayer(self, sublayer: keras.layers.Layer) -> None:
        """Changes the initial weights of a sublayer, after it is built."""

    def stack_input_layer(self, **options: object) -> keras.layers.Layer | None:
        """Returns a layer for the start of a stack of such blocks, or None. Options: name, dtype."""
        return None

    def stack_output_layer(self, norm: LayerLike, **options: object) -> keras.layers.Layer | None:
        """Returns a layer for the end of a stack of such blocks, with a copy of `norm`, or None. Options: name, dtype."""
        if not self.needs_final_norm:
            return None
        return clone(resolve(norm, NORMS, keras.layers.Layer, argument="norm"), **options)

    def _normalize(self, name, x, mask, training):
        norm = self.norms[name]
        if isinstance(norm, keras.layers.BatchNormalization):
            # Padding must not enter the batch statistics.
            return norm(x, mask=mask, training=training)
        return norm(x)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def get_config(self) -> Config:
        norm = self.norm if isinstance(self.norm, str) else serialize(self.norm)
        return {**super().get_config(), "norm": norm, "stochastic_depth": self.stochastic_depth, "seed": self.seed}


@serializable
class PostNormResidual(Residual):
    """Post-norm: `norm(x + f(x))`.

    Example:

    >>> import numpy as np
    >>> residual = PostNormResidual()
    >>> residual.post(np.array([[[1.0, 3.0]]]), np.array([[[0.0, 2.0]]])).numpy().round(2).tolist()
    [[[-1.0, 1.0]]]

    Reference: Vaswani et al., arXiv 1706.03762, section 3.1.
    """

    _norm_names = ("norm",)
    needs_final_norm = False

    def post(self, x: Tensor, y: Tensor, mask: Tensor | None = None, training: bool | None = None) -> Tensor:
        return self._normalize("norm", x + y, mask, training)


@serializable
class PreNormResidual(Residual):
    """Pre-norm: `x + f(norm(x))`. A stack of such blocks ends with a norm.

    Example:

    >>> import numpy as np
    >>> PreNormResidual().pre(np.array([[[1.0, 3.0]]])).numpy().round(2).tolist()
    [[[-1.0, 1.0]]]

    Reference: Xiong et al., On Layer Normalization in the Transformer Architecture, arXiv 2002.04745, table 1.
    """

    _norm_names = ("norm",)

    def pre(self, x: Tensor, mask: Tensor | None = None, training: bool | None = None) -> Tensor:
        return self._normalize("norm", x, mask, training)


@serializable
class NormalizedSkipResidual(PreNormResidual):
    """Pre-norm with the skip connection behind the norm: `α norm(x) + β f(norm(x))`. A stack of them ends with a norm.

    Args:
        norm: a name in `NORMS`, or a norm layer to copy.
        alpha: float. Defaults to 1.
        beta: float. Defaults to 1.

    Example:

    >>> import numpy as np
    >>> residual = NormalizedSkipResidual(alpha=2.0)
    >>> x = np.array([[[1.0, 3.0]]])
    >>> h = residual.pre(x)
    >>> residual.post(residual.skip(x, h), np.array([[[0.0, 2.0]]])).numpy().round(2).tolist()
    [[[-2.0, 4.0]]]

    Reference: Shoeybi et al., Megatron-LM, arXiv 1909.08053, whose code and BLOOM's have it as the option
    `apply_residual_connection_post_layernorm`; MiniMax, MiniMax-01, arXiv 2501.08313 (α and β). It is post-norm with one
    more norm before the first sublayer.
    """

    def __init__(
        self, norm: LayerLike = "layer_norm", alpha: float = 1.0, beta: float = 1.0, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(norm=norm, **kwargs)
        self.alpha = alpha
        self.beta = beta

    def skip(self, x: Tensor, h: Tensor) -> Tensor:
        return h if self.alpha == 1 else h * self.alpha

    def post(self, x: Tensor, y: Tensor, mask: Tensor | None = None, training: bool | None = None) -> Tensor:
        return x + (y if self.beta == 1 else y * self.beta)

    def get_config(self) -> Config:
        return {**super().get_config(), "alpha": self.alpha, "beta": self.beta}


@serializable
class SandwichNormResidual(Residual):
    """Sandwich norm: `x + norm_2(f(norm_1(x)))`.

    Example:

    >>> import numpy as np
    >>> residual = SandwichNormResidual()
    >>> residual.post(np.array([[[1.0, 3.0]]]), np.array([[[0.0, 2.0]]])).numpy().round(2).tolist()
    [[[0.0, 4.0]]]

    Reference: Ding et al., CogView, arXiv 2105.13290, section 2.4.
    """

    _norm_names = ("input_norm", "output_norm")

    def pre(self, x: Tensor, mask: Tensor | None = None, training: bool | None = None) -> Tensor:
        return self._normalize("input_norm", x, mask, training)

    def post(self, x: Tensor, y: Tensor, mask: Tensor | None = None, training: bool | None = None) -> Tensor:
        return x + self._normalize("output_norm", y, mask, training)


@serializable
class SublayerNormResidual(Residual):
    """Norm of the sublayer's output: `x + norm(f(x))`.

    Example:

    >>> import numpy as np
    >>> residual = SublayerNormResidual()
    >>> residual.post(np.array([[[1.0, 3.0]]]), np.array([[[0.0, 2.0]]])).numpy().round(2).tolist()
    [[[0.0, 4.0]]]

    Reference: Liu et al., Swin Transformer V2, arXiv 2111.09883, section 3.2 ("res-post-norm").
    """

    _norm_names = ("norm",)

    def post(self, x: Tensor, y: Tensor, mask: Tensor | None = None, training: bool | None = None) -> Tensor:
        return x + self._normalize("norm", y, mask, training)
