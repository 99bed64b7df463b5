"""A decoder-only stack."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import keras

from keras_transformer.blocks import DecoderBlock, DeepNormResidual, ParallelDecoderBlock, Residual
from keras_transformer.models.building.size import Size, get_size
from keras_transformer.models.building.stack import (
    final_norm,
    first_layer,
    make_attention,
    make_blocks,
    make_feed_forward,
    make_norm,
    of_block,
    resolve_residual,
    split_position,
    token_model,
)
from keras_transformer.positions import AttentionPosition
from keras_transformer.utils.serialization import choice
from keras_transformer.utils.types import Activation, AttentionLike, Config, PositionLike

# Radford et al., Language Models are Unsupervised Multitask Learners (GPT-2), table 2.
SIZES = {
    "small": Size(12, 768, 12, 3072),
    "medium": Size(24, 1024, 16, 4096),
    "large": Size(36, 1280, 20, 5120),
    "xl": Size(48, 1600, 25, 6400),
}
# Whether a parallel block has one norm for both sublayers.
_PARALLEL = {"two_norms": False, "one_norm": True}


def Decoder(
    size: str | Size,
    vocabulary_size: int,
    *,
    max_sequence_length: int = 1024,
    position: PositionLike = "learned",
    residual: str | Residual = "pre",
    norm: str | keras.layers.Layer = "layer_norm",
    embedding_scale: float | None = None,
    embedding_norm: bool = False,
    attention: AttentionLike = None,
    feedforward: str | keras.layers.Layer | Sequence[str | keras.layers.Layer | None] | None = "dense",
    activation: Activation = "gelu_tanh",
    dropout: float = 0.0,
    embedding_dropout: float | None = None,
    packed: bool = False,
    num_block_groups: int | None = None,
    parallel: str | None = None,
    name: str = "decoder",
) -> keras.Model:
    """A stack of causal decoder blocks over token ids. `tasks.LanguageModel` adds a head.

    Args:
        size: "small", "medium", "large", "xl" (the measures of GPT-2), or a `Size`.
        vocabulary_size: int. V.
        max_sequence_length: int. Rows of a learned position embedding.
        position: "learned", "sinusoidal", "rotary", an instance, or None.
        residual: name in `blocks.RESIDUALS`, or an instance to copy.
        norm: a name in `blocks.NORMS`, or a layer to copy.
        embedding_scale: float, or None for 1. Factor of the token embeddings.
        embedding_norm: bool. Whether the sum of token and position is normalized, before its dropout.
        attention: a name in `attention.MECHANISMS`; or a layer like `MultiHeadAttention` to copy for each block,
            with its own position; or a list of either, which repeats over the blocks.
        feedforward: a name in `feedforward.FEEDFORWARDS`, an instance to copy, or None for none (Mamba-2); or a list of
            these, which repeats over the blocks.
        activation: activation of a feed-forward that is given by name.
        dropout: float in [0, 1). Of the embedding, the attention weights, and the outputs of attention and feed-forward.
        embedding_dropout: float in [0, 1), or None for `dropout`.
        packed: bool. Whether it trains on rows of several documents (`data.pack`), none of which sees another: it takes
            "segment_ids" and "positions", int32 `(B, T)`, too. Generation is the same as without.
        num_block_groups: int, or None. Number of blocks with weights of their own; consecutive layers share a block, and
            each layer has its own cache. ALBERT has 1. Default None: a block for each layer.
        parallel: None; or "two_norms" or "one_norm" for attention and feed-forward in parallel, with a norm for each or one
            for both: see `blocks.ParallelDecoderBlock`. Requires `residual="pre"`.
        name: str.

    Returns:
        `keras.Model`: {"token_ids": int32 `(B, T)`, "padding_mask": bool `(B, T)`} to `(B, T, D)`. The mask may be None
        for rows without padding, so that a GPU needs no tensor of it; `tasks.LanguageModel` also takes inputs without it.

    Raises:
        ValueError: unknown name of a size or a part; `num_block_groups` above the number of layers; `parallel` with another
            residual scheme.

    Example:

    >>> from keras_transformer.models import Size
    >>> Decoder(Size(2, 16, 2, 32), vocabulary_size=100, position="rotary", norm="rms_norm").output_shape
    (None, None, 16)

    Reference: Radford et al., GPT-2, section 2.3 (pre-norm, a norm at the end), with the options above.
    """
    size = get_size(size, SIZES)
    added, inside = split_position(position, max_sequence_length)
    embedding = keras.layers.ReversibleEmbedding(vocabulary_size, size.hidden_dim, name="token_embedding")
    residual = resolve_residual(residual, norm, DeepNormResidual.of_stack, size.num_layers)
    shared_norm = None if parallel is None else _shares_norm(parallel, residual)
    block_of = _Blocks(size, attention, inside, feedforward, activation, residual, shared_norm, norm, dropout)
    blocks = make_blocks(block_of.block, size.num_layers, num_block_groups)
    return token_model(
        embedding,
        added,
        blocks,
        final_norm(residual, norm),
        dropout=dropout if embedding_dropout is None else embedding_dropout,
        packed=packed,
        name=name,
        input_layer=first_layer(residual),
        scale=embedding_scale,
        first_norm=make_norm(norm, "embedding_norm") if embedding_norm else None,
    )


def _shares_norm(parallel: str, residual: str | Residual) -> bool:
    """Whether parallel blocks have one norm for both sublayers."""
    shared = choice(parallel, _PARALLEL, argument="parallel")
    if residual != "pre":
        raise ValueError(f"Parallel blocks are pre-norm: residual must be 'pre'. Received: {residual!r}")
    return shared


class _Blocks(NamedTuple):
    """The parts of the blocks, each of which has copies of its own.

    Attributes:
        shared_norm: for parallel blocks, whether they have one norm for both sublayers; None for others.
    """

    size: Size
    attention: AttentionLike
    position: AttentionPosition | None
    feedforward: str | keras.layers.Layer | Sequence[str | keras.layers.Layer | None] | None
    activation: Activation
    residual: str | Residual
    shared_norm: bool | None
    norm: str | keras.layers.Layer
    dropout: float

    def block(self, index: int) -> keras.layers.Layer:
        """Returns a new block."""
        mixer = make_attention(self.size, of_block(self.attention, index), self.position, self.dropout)
        template = of_block(self.feedforward, index)
        feedforward = make_feed_forward(self.size.intermediate_dim, template, self.activation)
        options: Config = {"norm": self.norm, "dropout": self.dropout, "name": f"decoder_block_{index}"}
        if self.shared_norm is not None:
            return ParallelDecoderBlock(mixer, feedforward, self.shared_norm, **options)
        return DecoderBlock(mixer, feedforward, residual=self.residual, **options)
