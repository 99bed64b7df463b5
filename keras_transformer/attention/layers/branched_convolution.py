"""Two branches of convolutions over tokens and a third over their sum, as the Evolved Transformer has them."""

from __future__ import annotations

import types
from typing import Any

import keras
from keras import ops

from keras_transformer.attention.mixer import MixerInputs
from keras_transformer.attention.partition.bands import last_rows, pad_length
from keras_transformer.attention.token_mixer import TokenMixer, zero_masked
from keras_transformer.layers.norms import NORMS
from keras_transformer.utils.serialization import clone, resolve, serializable, serialize
from keras_transformer.utils.types import Cache, Config, Shape, Tensor


@serializable
class BranchedConvolution(TokenMixer):
    """`y = pad(output(norm(wide(x) + pad(narrow(x)))))`, pad being zeros up to the channels of what it is added to.

    `wide`, `narrow` and `output` are convolutions over tokens, or dense layers, each with its own kernel and activation. A
    kernel of K tokens begins `(K - 1) // 2` tokens before its own, with causality `K - 1`; what lies outside the sequence,
    and padding, counts as zeros in all three. Time and memory grow with T.

    Args:
        wide: `keras.layers.Dense`, `Conv1D`, `SeparableConv1D` or `DepthwiseConv1D` to copy, of stride 1, to W channels.
        narrow: likewise, to W channels or fewer.
        output: likewise, from W channels to D or fewer.
        norm: "layer_norm", "rms_norm", or a layer to copy.
        dropout: float in [0, 1). Of what each branch gives.
        seed: int or None. Of the dropout.

    Call arguments: see `TokenMixer`. Causal and not. Its cache holds the last tokens that the kernels reach, and the last
    sums of the branches, whatever `max_length` is.

    Returns:
        `(B, T, D)`; with a cache, `(output, next_cache)`.

    Raises:
        ValueError: layers of another kind, or with strides; kernels of one token alone in both branches, or in the output;
            widths that do not fit; asked for other keys than queries, scores or an `attention_mask`.

    Export: all three formats, with and without a cache.

    Example:

    >>> import numpy as np
    >>> layer = BranchedConvolution(
    ...     wide=keras.layers.SeparableConv1D(16, 11, activation="relu"),
    ...     narrow=keras.layers.SeparableConv1D(4, 7),
    ...     output=keras.layers.SeparableConv1D(8, 7),
    ... )
    >>> x = np.ones((1, 5, 8), "float32")
    >>> tuple(layer(x, x, use_causal_mask=True).shape)
    (1, 5, 8)
    >>> {name: tuple(tensor.shape) for name, tensor in layer.init_cache(1, max_length=9).items()}
    {'recent_inputs': (1, 10, 8), 'recent_sums': (1, 6, 16)}

    Reference: So et al., The Evolved Transformer, arXiv 1901.11117, figure 3.
    """

    def __init__(
        self,
        wide: keras.layers.Layer | Config,
        narrow: keras.layers.Layer | Config,
        output: keras.layers.Layer | Config,
        norm: str | Config | keras.layers.Layer | None = "layer_norm",
        dropout: float = 0.0,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.wide, self.narrow, self.output_convolution = (
            _copy(layer, name, self.dtype_policy)
            for layer, name in ((wide, "wide"), (narrow, "narrow"), (output, "output"))
        )
        self._branch_reach = max(_reach(self.wide), _reach(self.narrow))
        if not self._branch_reach or not _reach(self.output_convolution):
            raise ValueError(
                "Kernels of one token mix none: one of the branches, and the output, must have a longer one."
            )
        self.norm = resolve(norm, NORMS, keras.layers.Layer, argument="norm")
        self._norm = clone(self.norm, name="norm", dtype=self.dtype_policy)
        self.dropout = dropout
        self.seed = seed
        self._dropout_layer = keras.layers.Dropout(dropout, seed=seed, dtype=self.dtype_policy)

    @property
    def output_dense(self) -> Any:
        """What the output of a zero context is: its bias."""
        bias = self.output_convolution.bias
        if bias is None:
            return types.SimpleNamespace(bias=ops.zeros((self._width,)))
        return types.SimpleNamespace(
            bias=_widen(ops.reshape(ops.convert_to_tensor(bias), (1, 1, -1)), self._width)[0, 0]
        )

    def build(self, query_shape: Shape, value_shape: Shape | None = None, key_shape: Shape | None = None) -> None:
        self._width = query_shape[-1]
        shape = (query_shape[0], None, self._width)
        wide, narrow = (layer.compute_output_shape(shape)[-1] for layer in (self.wide, self.narrow))
        self._sum_shape = (query_shape[0], None, wide)
        out = self.output_convolution.compute_output_shape(self._sum_shape)[-1]
        if narrow > wide or out > self._width:
            raise ValueError(
                f"narrow must have no more channels than wide, and output no more than the tokens. Received: {narrow} and "
                f"{wide}; {out} and {self._width}."
            )
        self.wide.build(shape)
        self.narrow.build(shape)
        self._norm.build(self._sum_shape)
        self.output_convolution.build(self._sum_shape)

    def mix(self, inputs: MixerInputs) -> Tensor:
        x, visibility = inputs.query, inputs.visibility

        def padded(x, layer):
            reach = _reach(layer)
            left = reach if visibility.causal else reach // 2
            return pad_length(x, left, reach - left)

        x = zero_masked(x, visibility.query_mask)
        sums = self._sum(padded(x, self.wide), padded(x, self.narrow), inputs)
        return _widen(self.output_convolution(padded(sums, self.output_convolution)), self._width)

    def init_cache(self, batch_size: int, max_length: int, dtype: str | None = None) -> Cache:
        """The last tokens, "recent_inputs" `(B, K - 1, D)`, and sums, "recent_sums" `(B, K_output - 1, W)`; K the longer."""
        shapes = {
            "recent_inputs": (self._branch_reach, self._width),
            "recent_sums": (_reach(self.output_convolution), self._sum_shape[-1]),
        }
        dtype = dtype or self.compute_dtype
        return {name: ops.zeros((batch_size, *shape), dtype=dtype) for name, shape in shapes.items()}

    def extend(self, inputs: MixerInputs) -> tuple[Tensor, Cache]:
        x, cache, mask = inputs.query, inputs.cache, inputs.visibility.query_mask

        def joined(x, name):
            return ops.concatenate([ops.cast(cache[name], x.dtype), x], axis=1)

        inputs = joined(zero_masked(x, mask), "recent_inputs")
        wide, narrow = (inputs[:, self._branch_reach - _reach(layer) :] for layer in (self.wide, self.narrow))
        sums = joined(self._sum(wide, narrow, inputs), "recent_sums")
        output = _widen(self.output_convolution(sums), self._width)
        following = {
            name: ops.cast(last_rows(slab, ops.shape(x)[1], mask, cache[name].shape[1]), cache[name].dtype)
            for name, slab in (("recent_inputs", inputs), ("recent_sums", sums))
        }
        return output, following

    def _sum(self, wide, narrow, inputs):
        """What the branches give of tokens and those around them, added and normalized."""
        wide = self._dropout_layer(self.wide(wide), training=inputs.training)
        narrow = self._dropout_layer(self.narrow(narrow), training=inputs.training)
        return zero_masked(self._norm(wide + _widen(narrow, self._sum_shape[-1])), inputs.visibility.query_mask)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "wide": serialize(self.wide),
            "narrow": serialize(self.narrow),
            "output": serialize(self.output_convolution),
            "norm": serialize(self.norm),
            "dropout": self.dropout,
            "seed": self.seed,
        }


_KINDS = (keras.layers.Dense, keras.layers.Conv1D, keras.layers.SeparableConv1D, keras.layers.DepthwiseConv1D)


def _copy(layer, name, dtype):
    """A layer of its own, which pads nothing."""
    layer = resolve(layer, {}, keras.layers.Layer, argument="layer")
    if not isinstance(layer, _KINDS) or getattr(layer, "strides", (1,))[0] != 1:
        kinds = ", ".join(kind.__name__ for kind in _KINDS)
        raise ValueError(f"{name} must be one of {kinds}, of stride 1. Received: {layer!r}")
    padding = {"padding": "valid"} if hasattr(layer, "kernel_size") else {}
    return clone(layer, name=name, dtype=dtype, **padding)


def _reach(layer):
    """How many tokens beside its own a kernel reads."""
    if not hasattr(layer, "kernel_size"):
        return 0
    return (layer.kernel_size[0] - 1) * layer.dilation_rate[0]


def _widen(x, width):
    """Zeros behind the channels of `(B, T, C)`."""
    missing = width - x.shape[-1]
    return ops.pad(x, ((0, 0), (0, 0), (0, missing))) if missing else x
