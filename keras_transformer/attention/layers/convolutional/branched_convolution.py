"""Branched convolutions of the Evolved Transformer."""

from __future__ import annotations

import types
from typing import Unpack

import keras
from keras import ops

from keras_transformer.attention.mixer import MixerInputs
from keras_transformer.attention.partition.bands import last_rows, pad_length
from keras_transformer.attention.token_mixer import TokenMixer, zero_masked
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.norms import NORMS
from keras_transformer.utils.serialization import clone, resolve, serializable, serialize
from keras_transformer.utils.types import Cache, Config, LayerOptions, Shape, Tensor


@serializable
class BranchedConvolution(TokenMixer):
    """Two parallel convolutions over tokens, and a third over their sum.

        y = pad(output(norm(wide(x) + pad(narrow(x)))))

    `pad` adds channels of zeros. `wide`, `narrow` and `output` are convolutions over tokens or dense layers, each with its
    own kernel and activation. A kernel of K tokens starts `(K - 1) // 2` tokens before the current one, or `K - 1` if
    causal. Padding, and tokens outside the sequence, are zeros in all three. Time and memory grow with T.

    Args:
        wide: `keras.layers.Dense`, `Conv1D`, `SeparableConv1D` or `DepthwiseConv1D` to copy, of stride 1, to W channels.
        narrow: likewise, to W channels or fewer.
        output: likewise, from W channels to D or fewer.
        norm: "layer_norm", "rms_norm", or a layer to copy.
        dropout: float in [0, 1). Dropout rate of the output of each branch.
        seed: int or None. Seed of the dropout.

    Call arguments: see `TokenMixer`. Causal or bidirectional. The cache holds the last tokens that the kernels read and the
        last sums of the branches. Its size does not depend on `max_length`.

    Returns:
        `(B, T, D)`; with a cache, `(output, next_cache)`.

    Raises:
        ValueError: layers of another class, or with strides; kernels of size 1 in both branches, or in the output; channels
            that do not match; an unsupported argument: cross-attention, scores or an `attention_mask`.

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
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.wide, self.narrow, self.output_convolution = (
            _copy_convolution(layer, name, self.dtype_policy)
            for layer, name in ((wide, "wide"), (narrow, "narrow"), (output, "output"))
        )
        self._branch_context_length = max(_context_length(self.wide), _context_length(self.narrow))
        if not self._branch_context_length or not _context_length(self.output_convolution):
            raise ValueError("One of the branches, and the output, must have a kernel of 2 tokens or more.")
        self.norm = resolve(norm, NORMS, keras.layers.Layer, argument="norm")
        self._norm = clone(self.norm, name="norm", dtype=self.dtype_policy)
        self.dropout = dropout
        self.seed = seed
        self._dropout_layer = Dropout(dropout, seed=seed, dtype=self.dtype_policy)

    @property
    def output_dense(self) -> keras.layers.Layer:
        """An object whose `bias` is the output of a zero context."""
        bias = self.output_convolution.bias
        if bias is None:
            return types.SimpleNamespace(bias=ops.zeros((self._width,)))
        return types.SimpleNamespace(
            bias=_pad_channels(ops.reshape(ops.convert_to_tensor(bias), (1, 1, -1)), self._width)[0, 0]
        )

    def build(self, query_shape: Shape, value_shape: Shape | None = None, key_shape: Shape | None = None) -> None:
        self._width = query_shape[-1]
        shape = (query_shape[0], None, self._width)
        wide, narrow = (layer.compute_output_shape(shape)[-1] for layer in (self.wide, self.narrow))
        self._sum_shape = (query_shape[0], None, wide)
        out = self.output_convolution.compute_output_shape(self._sum_shape)[-1]
        if narrow > wide or out > self._width:
            raise ValueError(
                f"`narrow` must not have more channels than `wide`, nor `output` more than the input. "
                f"Received: {narrow} and {wide}; {out} and {self._width}."
            )
        self.wide.build(shape)
        self.narrow.build(shape)
        self._norm.build(self._sum_shape)
        self.output_convolution.build(self._sum_shape)

    def mix(self, inputs: MixerInputs) -> Tensor:
        x, visibility = inputs.query, inputs.visibility

        def padded(x: Tensor, layer: keras.layers.Layer) -> Tensor:
            context = _context_length(layer)
            left = context if visibility.causal else context // 2
            return pad_length(x, left, context - left)

        x = zero_masked(x, visibility.query_mask)
        sums = self._sum(padded(x, self.wide), padded(x, self.narrow), inputs)
        return _pad_channels(self.output_convolution(padded(sums, self.output_convolution)), self._width)

    def init_cache(self, batch_size: int, max_length: int, dtype: str | None = None) -> Cache:
        """Returns an empty cache: "recent_inputs" `(B, K - 1, D)`, K the longer, "recent_sums" `(B, K_output - 1, W)`."""
        shapes = {
            "recent_inputs": (self._branch_context_length, self._width),
            "recent_sums": (_context_length(self.output_convolution), self._sum_shape[-1]),
        }
        dtype = dtype or self.compute_dtype
        return {name: ops.zeros((batch_size, *shape), dtype=dtype) for name, shape in shapes.items()}

    def extend(self, inputs: MixerInputs) -> tuple[Tensor, Cache]:
        x, cache, mask = inputs.query, inputs.cache, inputs.visibility.query_mask

        def joined(x: Tensor, name: str) -> Tensor:
            return ops.concatenate([ops.cast(cache[name], x.dtype), x], axis=1)

        tokens, context = joined(zero_masked(x, mask), "recent_inputs"), self._branch_context_length
        wide, narrow = (tokens[:, context - _context_length(layer) :] for layer in (self.wide, self.narrow))
        sums = joined(self._sum(wide, narrow, inputs), "recent_sums")
        output = _pad_channels(self.output_convolution(sums), self._width)
        following = {
            name: ops.cast(last_rows(tensor, ops.shape(x)[1], mask, cache[name].shape[1]), cache[name].dtype)
            for name, tensor in (("recent_inputs", tokens), ("recent_sums", sums))
        }
        return output, following

    def _sum(self, wide, narrow, inputs):
        """Returns the normalized sum of the branches."""
        wide = self._dropout_layer(self.wide(wide), training=inputs.training)
        narrow = self._dropout_layer(self.narrow(narrow), training=inputs.training)
        return zero_masked(self._norm(wide + _pad_channels(narrow, self._sum_shape[-1])), inputs.visibility.query_mask)

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


_CONVOLUTIONS = (keras.layers.Dense, keras.layers.Conv1D, keras.layers.SeparableConv1D, keras.layers.DepthwiseConv1D)


def _copy_convolution(layer, name, dtype):
    """Returns a copy of a layer, without padding."""
    layer = resolve(layer, {}, keras.layers.Layer, argument="layer")
    if not isinstance(layer, _CONVOLUTIONS) or getattr(layer, "strides", (1,))[0] != 1:
        kinds = ", ".join(kind.__name__ for kind in _CONVOLUTIONS)
        raise ValueError(f"{name} must be one of {kinds} with stride 1. Received: {layer!r}")
    padding = {"padding": "valid"} if hasattr(layer, "kernel_size") else {}
    return clone(layer, name=name, dtype=dtype, **padding)


def _context_length(layer):
    """Returns the number of tokens that a kernel reads besides the current one."""
    if not hasattr(layer, "kernel_size"):
        return 0
    return (layer.kernel_size[0] - 1) * layer.dilation_rate[0]


def _pad_channels(x, width):
    """Pads the channels of `(B, T, C)` with zeros."""
    missing = width - x.shape[-1]
    return ops.pad(x, ((0, 0), (0, 0), (0, missing))) if missing else x
