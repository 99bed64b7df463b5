"""A block whose inputs can be had back from its outputs."""

import keras

from keras_transformer.attention.masks import implicit_mask
from keras_transformer.blocks.block import serialize_template, template
from keras_transformer.layers.norms import NORMS
from keras_transformer.utils.serialization import build_once, clone, resolve, serializable, serialize


@serializable
class ReversibleBlock(keras.layers.Layer):
    """Two streams, each of which is changed by what the other holds: `y_1 = x_1 + f(x_2)`, `y_2 = x_2 + g(y_1)`.

    f is a mixer and g a feed-forward, each behind a norm of its own. `ReversibleStack` makes a stack of these.

    Args:
        mixer: `MultiHeadAttention`, or another layer of its contract, or its config.
        feedforward: a layer `(B, T, D)` to `(B, T, D)`, or its config.
        causal: bool. Whether the mixer is called as in a decoder. Default False.
        norm: "layer_norm", "rms_norm", or a norm layer to copy. Norms over the batch are refused.
        dropout: float in [0, 1). Of what mixer and feed-forward give.
        seed: int or None. Of the dropout.

    Call arguments:
        first, second: float `(B, T, D)`: the streams.
        padding_mask: boolean `(B, T)`, True = a real token; None for the mask that Keras carries, if any.
        positions: int `(T,)` or `(B, T)`; see `MultiHeadAttention`.

    Returns:
        `(y_1, y_2)`, `(B, T, D)` each.

    Raises:
        ValueError: a norm over the batch.

    Example:

    >>> import numpy as np
    >>> from keras_transformer.attention import MultiHeadAttention
    >>> from keras_transformer.feedforward import DenseFeedForward
    >>> block = ReversibleBlock(MultiHeadAttention(2, 4), DenseFeedForward(16))
    >>> [tuple(y.shape) for y in block(np.ones((1, 3, 8)), np.ones((1, 3, 8)))]
    [(1, 3, 8), (1, 3, 8)]

    Reference: Gomez et al., The Reversible Residual Network, arXiv 1707.04585, equation 6; Kitaev et al., Reformer, arXiv
    2001.04451, section 3.
    """

    def __init__(self, mixer, feedforward, causal=False, norm="layer_norm", dropout=0.0, seed=None, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.mixer = resolve(mixer, {}, keras.layers.Layer, argument="mixer")
        self.feedforward = resolve(feedforward, {}, keras.layers.Layer, argument="feedforward")
        self.causal = causal
        self.norm = template(norm, NORMS, keras.layers.Layer)
        layer = resolve(norm, NORMS, keras.layers.Layer, argument="norm")
        if isinstance(layer, keras.layers.BatchNormalization):
            raise ValueError(f"{self.name} computes its inputs again: a norm over the batch would count them twice.")
        self.mixer_norm, self.feedforward_norm = (
            clone(layer, name=name, dtype=self.dtype_policy) for name in ("mixer_norm", "feedforward_norm")
        )
        self.dropout = dropout
        self.seed = seed
        self._mixer_dropout, self._feedforward_dropout = (
            keras.layers.Dropout(dropout, seed=seed, dtype=self.dtype_policy) for _ in range(2)
        )

    def build(self, first_shape, second_shape=None):
        for layer in (self.mixer_norm, self.feedforward_norm, self.feedforward):
            build_once(layer, first_shape)
        build_once(self.mixer, first_shape, first_shape)

    def call(self, first, second, padding_mask=None, positions=None, training=None):
        padding_mask = implicit_mask(first) if padding_mask is None else padding_mask
        first = first + self.mix(second, padding_mask, positions, training)
        return first, second + self.feed(first, training)

    def mix(self, x, padding_mask=None, positions=None, training=None):
        """f, `(B, T, D)`."""
        x = self.mixer_norm(x)
        options = {"positions": positions, "use_causal_mask": self.causal, "training": training}
        return self._mixer_dropout(self.mixer(x, x, value_mask=padding_mask, **options), training=training)

    def extend(self, x, cache, cache_index, padding_mask=None, positions=None):
        """f of new tokens, and the next cache of the mixer."""
        x = self.mixer_norm(x)
        options = {"positions": positions, "cache": cache, "cache_index": cache_index}
        return self.mixer(x, x, query_mask=padding_mask, use_causal_mask=True, **options)

    def feed(self, x, training=None):
        """g, `(B, T, D)`."""
        return self._feedforward_dropout(
            self.feedforward(self.feedforward_norm(x), training=training), training=training
        )

    def compute_output_spec(self, first, second, *args, **options):
        return tuple(keras.KerasTensor(x.shape, dtype=self.compute_dtype) for x in (first, second))

    def get_config(self):
        return {
            **super().get_config(),
            "mixer": serialize(self.mixer),
            "feedforward": serialize(self.feedforward),
            "causal": self.causal,
            "norm": serialize_template(self.norm),
            "dropout": self.dropout,
            "seed": self.seed,
        }
