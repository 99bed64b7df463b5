"""Residual schemes: where a block normalizes, and how it adds what a sublayer gives.

A scheme has two halves around a sublayer f: `y = f(scheme.pre(x))`, then `x = scheme.post(x, y)`.
"""

import keras

from keras_transformer.layers.norms import NORMS
from keras_transformer.utils.serialization import clone, resolve, serializable, serialize


@serializable
class Residual(keras.layers.Layer):
    """Base of the schemes: `x + f(x)`.

    Args:
        norm: "layer_norm", "rms_norm", "batch_norm", or a norm layer, of which the scheme makes copies.
        stochastic_depth: float in [0, 1). In training, the share of rows in which f(x) is left out; it grows by
            `1 / (1 - stochastic_depth)` in the others.
        seed: int or None. Of the rows.

    To write a scheme: override `pre` and `post`, list its norms in `_norm_names`, and set `needs_final_norm` if a stack of
    such blocks should end with a norm because its sum is never normalized. Override `initialize_sublayer` to change the
    initial weights of a sublayer, and `num_streams`, `stack_input_layer` and `stack_output_layer` for several streams.
    """

    _norm_names = ()
    needs_final_norm = True
    num_streams = 1

    def __init__(self, norm="layer_norm", stochastic_depth=0.0, seed=None, **kwargs):
        super().__init__(**kwargs)
        self.norm = norm if isinstance(norm, str) else resolve(norm, NORMS, keras.layers.Layer, argument="norm")
        template = resolve(norm, NORMS, keras.layers.Layer, argument="norm")
        self.norms = {name: clone(template, name=name, dtype=self.dtype_policy) for name in self._norm_names}
        self.stochastic_depth = stochastic_depth
        self.seed = seed
        rows = (None, 1, 1)
        self._rows = keras.layers.Dropout(stochastic_depth, noise_shape=rows, seed=seed, dtype=self.dtype_policy)

    def build(self, input_shape):
        for norm in self.norms.values():
            norm.build(input_shape)

    def pre(self, x, mask=None, training=None):
        """What the sublayer sees, `(B, T, D)`."""
        return x

    def post(self, x, y, mask=None, training=None):
        """The input x and the sublayer's output y, joined, `(B, T, D)`."""
        return x + y

    def drop_path(self, y, training=None):
        """What a sublayer gives, `(B, T, D)`, in training with nothing in some rows: Huang et al., arXiv 1603.09382."""
        return self._rows(y, training=training)

    def initialize_sublayer(self, sublayer):
        """Changes how the weights of a sublayer start, when it is built."""

    def stack_input_layer(self, **options):
        """A layer in front of a stack of such blocks, or None. Options: name, dtype."""
        return None

    def stack_output_layer(self, norm, **options):
        """A layer behind a stack of such blocks, with a copy of `norm`, or None. Options: name, dtype."""
        if not self.needs_final_norm:
            return None
        return clone(resolve(norm, NORMS, keras.layers.Layer, argument="norm"), **options)

    def _normalize(self, name, x, mask, training):
        norm = self.norms[name]
        if isinstance(norm, keras.layers.BatchNormalization):
            # Statistics over the batch: padding must not enter them.
            return norm(x, mask=mask, training=training)
        return norm(x)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        norm = self.norm if isinstance(self.norm, str) else serialize(self.norm)
        return {**super().get_config(), "norm": norm, "stochastic_depth": self.stochastic_depth, "seed": self.seed}


@serializable
class PostNormResidual(Residual):
    """`norm(x + f(x))`.

    Reference: Vaswani et al., arXiv 1706.03762, section 3.1.
    """

    _norm_names = ("norm",)
    needs_final_norm = False

    def post(self, x, y, mask=None, training=None):
        return self._normalize("norm", x + y, mask, training)


@serializable
class PreNormResidual(Residual):
    """`x + f(norm(x))`; a stack of these ends with a norm of its own.

    Reference: Xiong et al., On Layer Normalization in the Transformer Architecture, arXiv 2002.04745, table 1.
    """

    _norm_names = ("norm",)

    def pre(self, x, mask=None, training=None):
        return self._normalize("norm", x, mask, training)


@serializable
class SandwichNormResidual(Residual):
    """`x + norm_2(f(norm_1(x)))`.

    Reference: Ding et al., CogView, arXiv 2105.13290, section 2.4.
    """

    _norm_names = ("input_norm", "output_norm")

    def pre(self, x, mask=None, training=None):
        return self._normalize("input_norm", x, mask, training)

    def post(self, x, y, mask=None, training=None):
        return x + self._normalize("output_norm", y, mask, training)


@serializable
class SublayerNormResidual(Residual):
    """`x + norm(f(x))`.

    Reference: Liu et al., Swin Transformer V2, arXiv 2111.09883, section 3.2 ("res-post-norm").
    """

    _norm_names = ("norm",)

    def post(self, x, y, mask=None, training=None):
        return x + self._normalize("norm", y, mask, training)
