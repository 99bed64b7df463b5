"""Gemma 3n, its text model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import keras

from keras_transformer.attention import CrossDecoderAttention, ScaledDot, SharedKeyValue
from keras_transformer.blocks import AltUp, AltUpBlock, AltUpKeyValueBlock, StreamExpansion, StreamReduction
from keras_transformer.feedforward import GatedFeedForward, GaussianTopK
from keras_transformer.layers.norms import RMSNormalization
from keras_transformer.models.building.per_layer_embedding import PerLayerEmbedding
from keras_transformer.models.building.rotary_attention import GroupedSize, get_grouped_size
from keras_transformer.models.building.size import Size
from keras_transformer.models.building.stack import make_norm, of_block, padding_input, token_input
from keras_transformer.positions import Rotary
from keras_transformer.utils.serialization import clone
from keras_transformer.utils.types import Activation, Config

# The config files of the published checkpoints.
SIZES = {
    "E2B": GroupedSize(Size(30, 2048, 8, 8192), 2, 256),
    "E4B": GroupedSize(Size(35, 2048, 8, 16384), 2, 256),
}
_LAYER_VOCABULARY = 262144
_SHARED = {30: 10, 35: 15}


class Gemma3nStreams(NamedTuple):
    """The parts of Gemma 3n beside attention and feed-forward, without norms.

    Attributes:
        num_streams: int >= 2. Streams of AltUp.
        active: int. The stream that blocks compute.
        coefficient_limit: float or None. See `blocks.AltUp`.
        scales_output: bool. See `blocks.AltUpBlock`.
        laurel_rank: int >= 1. See `blocks.AltUpBlock`.
        layer_width: int >= 1. Width of the input of each layer.
        layer_vocabulary_size: int >= 1. Rows of the table of these inputs; None for that of the published models, 262144,
            or for the vocabulary if that is smaller.

    Example:

    >>> Gemma3nStreams(num_streams=2).laurel_rank
    64
    """

    num_streams: int = 4
    active: int = 0
    coefficient_limit: float | None = 120.0
    scales_output: bool = True
    laurel_rank: int = 64
    layer_width: int = 256
    layer_vocabulary_size: int | None = None


def Gemma3n(
    size: str | Size = "E2B",
    vocabulary_size: int = 262400,
    *,
    num_key_value_heads: int | None = None,
    key_dim: int | None = None,
    num_sharing_blocks: int | None = None,
    streams: Gemma3nStreams | None = None,
    feedforward: Sequence[keras.layers.Layer] | None = None,
    window: Sequence[int | None] = (512, 512, 512, 512, None),
    positions: tuple[Rotary, Rotary] | None = None,
    use_attention_bias: bool = False,
    activation: Activation = "gelu_tanh",
    attention_dropout: float = 0.0,
    rms_norm_epsilon: float = 1e-6,
    name: str = "gemma3n",
) -> keras.Model:
    """The decoder of Gemma 3n: streams of AltUp, LAuReL, an input of each layer for each token, and shared keys and values.

    The last blocks have no keys and values: they attend to those of the last block before them with the same kind of
    attention, with or without a window. The cache has those of the other blocks, of all tokens.

    Args:
        size: "E2B", "E4B", or a `Size`.
        vocabulary_size: int. V.
        num_key_value_heads: int or None. Number of key/value heads, a divisor of the number of heads. None: that of the
            named size, or the number of heads.
        key_dim: int or None. Size of each head. None: that of the named size, or `D / N`.
        num_sharing_blocks: int >= 0, or None for that of the named size, else 0. Blocks at the end without keys and values.
        streams: `Gemma3nStreams`, or None for those of the published models.
        feedforward: sequence of layers to copy, which repeats over the blocks. None for `GatedFeedForward` of `activation`,
            in the first 10 blocks of more than 10 with `GaussianTopK(0.95)`.
        window: sequence of int, number of tokens that a token attends to, itself included, and None for all tokens before,
            that repeats over the blocks.
        positions: a pair of `positions.Rotary`, of blocks that see all tokens and of blocks with a window. None for
            wavelengths of 1000000 and 10000 that turn halves.
        use_attention_bias: bool. Whether the four projections of attention have biases.
        activation: activation of the gates.
        attention_dropout: float in [0, 1). Of the attention weights.
        rms_norm_epsilon: float > 0. Of every norm.
        name: str.

    Returns:
        `keras.Model`: {"token_ids": int32 `(B, T)`, "padding_mask": bool `(B, T)`} to `(B, T, D)`.

    Raises:
        ValueError: unknown size name; `num_key_value_heads` does not divide the number of heads; a sharing block has no
            block of its kind before it.

    Blocks with a window compute all scores, and mask them.

    Example:

    >>> streams = Gemma3nStreams(num_streams=3, laurel_rank=2, layer_width=4)
    >>> Gemma3n(Size(4, 16, 4, 24), 100, streams=streams, num_sharing_blocks=2, window=(8, None)).output_shape
    (None, None, 16)

    Reference: Google, Gemma 3n, 2025, and its code.
    """
    grouped = get_grouped_size(size, SIZES, num_key_value_heads, key_dim)
    size, streams = grouped.size, streams or Gemma3nStreams()
    sharing = _num_sharing_blocks(grouped) if num_sharing_blocks is None else num_sharing_blocks
    norm = RMSNormalization(epsilon=rms_norm_epsilon)
    windows = [of_block(window, index) for index in range(size.num_layers)]
    sources = sharing_sources([each is not None for each in windows], sharing)
    blocks = _Blocks(
        grouped,
        streams,
        norm,
        feedforward or _feedforwards(size, activation),
        windows,
        positions or (Rotary(1e6, "halves"), Rotary(layout="halves")),
        activation,
        {"use_bias": use_attention_bias, "dropout": attention_dropout},
    )
    inputs = {"token_ids": token_input(), "padding_mask": padding_input()}
    x, layer_inputs = _embedded(inputs["token_ids"], vocabulary_size, size, streams, norm)
    x = blocks.apply(x, layer_inputs, inputs["padding_mask"], sources)
    x = StreamReduction(streams.num_streams, name="stream_reduction")(x)
    return keras.Model(inputs, make_norm(norm, "final_norm")(x), name=name)


class _Blocks(NamedTuple):
    """The parts of the blocks, each of which has copies of its own.

    Attributes:
        feedforwards: sequence that repeats over the blocks.
        windows: of each block.
        rotaries: the positions of blocks that see all tokens, and of blocks with a window.
        attention: "use_bias" and "dropout" of attention.
    """

    grouped: GroupedSize
    streams: Gemma3nStreams
    norm: keras.layers.Layer
    feedforwards: Sequence[keras.layers.Layer]
    windows: Sequence[int | None]
    rotaries: tuple[Rotary, Rotary]
    activation: Activation
    attention: Config

    def apply(
        self,
        x: keras.KerasTensor,
        layer_inputs: Sequence[keras.KerasTensor],
        padding_mask: keras.KerasTensor,
        sources: Sequence[int | None],
    ) -> keras.KerasTensor:
        """Returns the streams after all blocks; `sources`: see `sharing_sources`."""
        made = []
        for index, source in enumerate(sources):
            if source is None:
                x, *pair = self._key_value_block(index)(x, layer_inputs[index], padding_mask=padding_mask)
                made.append(pair)
            else:
                x = AltUpBlock(**self._parts(index))(x, layer_inputs[index], *made[source], padding_mask=padding_mask)
        return x

    def _key_value_block(self, index: int) -> AltUpKeyValueBlock:
        parts = self._parts(index)
        key_value = SharedKeyValue(
            self.grouped.num_key_value_heads,
            self.grouped.key_dim,
            position=clone(self._position(index)),
            key_norm=self.norm,
            value_norm_epsilon=self.norm.epsilon,
            use_bias=self.attention["use_bias"],
            name="key_value",
        )
        return AltUpKeyValueBlock(key_value=key_value, **parts)

    def _parts(self, index: int) -> Config:
        streams, norm = self.streams, self.norm
        attention = CrossDecoderAttention(
            self.grouped.size.num_heads,
            self.grouped.key_dim,
            position=clone(self._position(index)),
            window=self.windows[index],
            scoring=ScaledDot(1.0),
            query_norm=norm,
            name="self_attention",
            **self.attention,
        )
        return {
            "attention": attention,
            "feedforward": clone(of_block(self.feedforwards, index), name="feedforward"),
            "alt_up": AltUp(streams.num_streams, streams.active, streams.coefficient_limit, norm, name="alt_up"),
            "laurel_rank": streams.laurel_rank,
            "activation": self.activation,
            "scales_output": streams.scales_output,
            "norm": norm,
            "name": f"decoder_block_{index}",
        }

    def _position(self, index: int) -> Rotary:
        return self.rotaries[self.windows[index] is not None]


def sharing_sources(has_window: Sequence[bool], num_sharing_blocks: int) -> list[int | None]:
    """Returns for each block the index of the block whose keys and values it attends to; None for its own.

    Raises:
        ValueError: there is none of its kind.
    """
    first = len(has_window) - num_sharing_blocks
    sources: list[int | None] = []
    for index, kind in enumerate(has_window):
        before = [each for each in range(max(first, 0)) if has_window[each] == kind]
        if index >= first and not before:
            raise ValueError(
                f"Block {index} of {len(has_window)} shares the keys and values of a block of its kind among the first "
                f"{max(first, 0)}, and there is none. Received: num_sharing_blocks={num_sharing_blocks}"
            )
        sources.append(None if index < first else before[-1])
    return sources


def _num_sharing_blocks(grouped: GroupedSize) -> int:
    """The number of blocks without keys and values in the published model of a size; 0 for other sizes."""
    return _SHARED.get(grouped.size.num_layers, 0) if grouped in SIZES.values() else 0


def _embedded(
    token_ids: keras.KerasTensor, vocabulary_size: int, size: Size, streams: Gemma3nStreams, norm: keras.layers.Layer
) -> tuple[keras.KerasTensor, list[keras.KerasTensor]]:
    """The streams before the blocks, and the input of each block."""
    table = streams.layer_vocabulary_size or min(vocabulary_size, _LAYER_VOCABULARY)
    x = keras.layers.ReversibleEmbedding(vocabulary_size, size.hidden_dim, name="token_embedding")(token_ids)
    of_layers = PerLayerEmbedding(size.num_layers, table, streams.layer_width, norm, name="layer_embedding")
    layer_inputs = of_layers(token_ids, x)
    x = keras.layers.Rescaling(math.sqrt(size.hidden_dim), name="embedding_scale")(x)
    return StreamExpansion(streams.num_streams, name="stream_expansion")(x), layer_inputs


def _feedforwards(size: Size, activation: Activation) -> list[keras.layers.Layer]:
    sparse = 10 if size.num_layers > 10 else 0
    dense = GatedFeedForward(size.intermediate_dim, activation)
    return [
        GatedFeedForward(size.intermediate_dim, GaussianTopK(0.95, activation)) if index < sparse else dense
        for index in range(size.num_layers)
    ]
