"""YOCO: a decoder that caches keys and values once."""

from __future__ import annotations

from collections.abc import Sequence

import keras

from keras_transformer.attention import CrossDecoderAttention, LocalAttention, MultiHeadAttention, SharedKeyValue
from keras_transformer.blocks import CrossDecoderBlock, DecoderBlock, Residual
from keras_transformer.layers.dropout import Dropout
from keras_transformer.models.building.prefill_exit import PrefillExit
from keras_transformer.models.building.size import Size, get_size
from keras_transformer.models.building.stack import final_norm, make_feed_forward, make_norm, padding_input, token_input
from keras_transformer.positions import ATTENTION_POSITIONS, AttentionPosition
from keras_transformer.recurrence import GatedRetention
from keras_transformer.utils.serialization import choice, clone, resolve
from keras_transformer.utils.types import Activation, Config, PositionLike

SIZES = {"3B": Size(26, 3072, 24, 8192)}


def YOCO(
    size: str | Size,
    vocabulary_size: int,
    *,
    self_decoder: str = "local",
    window: int | Sequence[int | None] | None = 1024,
    num_key_value_heads: int | None = None,
    position: PositionLike = "rotary",
    residual: str | Residual = "pre",
    norm: str | keras.layers.Layer = "rms_norm",
    feedforward: str | keras.layers.Layer = "gated",
    activation: Activation = "silu",
    dropout: float = 0.0,
    name: str = "yoco",
) -> keras.Model:
    """A decoder-decoder: a self-decoder computes one set of keys and values, which all layers of a cross-decoder share.

    The first half of the blocks mixes tokens in linear time with a state of fixed size; the second half attends causally to
    the shared keys and values. The cache holds one key and value per token instead of one per token and layer. Prefill of a
    prompt runs the self-decoder on all tokens and the cross-decoder on the last token only (see `PrefillExit`).

    Args:
        size: "3B", or a `Size` with an even number of layers.
        vocabulary_size: int. V.
        self_decoder: "local" (attention within a window), "retention" (gated), or a causal layer with the interface of
            `MultiHeadAttention` to copy for each block of the first half.
        window: int >= 1. Number of tokens that "local" attends to, the token itself included. Default 1024.
        num_key_value_heads: int that divides the number of heads, or None for the same number. For "local" and the shared
            keys and values.
        position: a name in `positions.ATTENTION_POSITIONS`, an instance, or None. For "local" and the cross-decoder.
        residual: name in `blocks.RESIDUALS`, or an instance to copy.
        norm: "layer_norm", "rms_norm", "batch_norm", or a layer to copy. The input of the shared keys and values is
            normalized too.
        feedforward: "dense", "gated", or an instance to copy.
        activation: activation of a feed-forward that is given by name.
        dropout: float in [0, 1). Of the embedding, the attention weights, and the outputs of attention and feed-forward.
        name: str.

    Returns:
        `keras.Model`: {"token_ids": int32 `(B, T)`, "padding_mask": bool `(B, T)`} to `(B, T, D)`.

    Raises:
        ValueError: unknown name of a size or a part; an odd number of layers.

    All generation methods work except contrastive search, which needs the hidden states of the whole prompt.

    Example:

    >>> from keras_transformer.models import Size
    >>> YOCO(Size(4, 16, 2, 32), vocabulary_size=100, window=8).output_shape
    (None, None, 16)

    Reference: Sun et al., You Only Cache Once, arXiv 2405.05254, sections 2 and 3; sizes are those of the authors' code
    (there with 8 key/value heads). The angles of rotary positions are those of `positions.Rotary`, where that code spaces
    them as RetNet does, and embeddings are not scaled.
    """
    size = get_size(size, SIZES)
    if size.num_layers % 2:
        raise ValueError(f"Half of the layers form the self-decoder: their number must be even. Received: {size}")
    position = resolve(position, ATTENTION_POSITIONS, AttentionPosition, argument="position")
    key_heads = num_key_value_heads or size.num_heads
    mixer = _mixer(self_decoder, size, window, key_heads, position, dropout)
    options: Config = {"residual": residual, "norm": norm, "dropout": dropout}
    inputs = {"token_ids": token_input(), "padding_mask": padding_input()}
    mask = inputs["padding_mask"]
    x = keras.layers.ReversibleEmbedding(vocabulary_size, size.hidden_dim, name="token_embedding")(inputs["token_ids"])
    x = Dropout(dropout, name="embedding_dropout")(x)
    for index in range(size.num_layers // 2):
        parts = (clone(mixer, name="self_attention"), make_feed_forward(size.intermediate_dim, feedforward, activation))
        x = DecoderBlock(*parts, name=f"self_decoder_block_{index}", **options)(x, padding_mask=mask)
    shared = SharedKeyValue(
        key_heads, size.hidden_dim // size.num_heads, position=clone(position), name="shared_key_value"
    )
    key, value = shared(make_norm(norm, "key_value_norm")(x))
    x = PrefillExit(name="prefill_exit")(x)
    for index in range(size.num_layers // 2):
        parts = (_attention(size, position, dropout), make_feed_forward(size.intermediate_dim, feedforward, activation))
        x = CrossDecoderBlock(*parts, name=f"cross_decoder_block_{index}", **options)(x, key, value, padding_mask=mask)
    last_norm = final_norm(residual, norm)
    return keras.Model(inputs, x if last_norm is None else last_norm(x), name=name)


def _mixer(self_decoder, size, window, key_heads, position, dropout):
    """The template of the mixers of the self-decoder."""
    if not isinstance(self_decoder, str):
        return self_decoder
    head_dim = size.hidden_dim // size.num_heads
    makers = {
        "local": lambda: MultiHeadAttention(
            size.num_heads,
            head_dim,
            num_key_value_heads=key_heads,
            mechanism=LocalAttention(window, dropout=dropout),
            position=clone(position),
        ),
        "retention": lambda: GatedRetention(size.num_heads, head_dim, value_dim=head_dim),
    }
    return choice(self_decoder, makers, argument="self_decoder")()


def _attention(size, position, dropout):
    head_dim = size.hidden_dim // size.num_heads
    return CrossDecoderAttention(
        size.num_heads, head_dim, position=clone(position), dropout=dropout, name="cross_attention"
    )
