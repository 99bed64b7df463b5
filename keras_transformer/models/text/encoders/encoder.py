"""An encoder-only stack."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import keras
from keras import ops

from keras_transformer.blocks import DeepNormResidual, EncoderBlock, Residual
from keras_transformer.layers.dropout import Dropout
from keras_transformer.models.building.size import Size, get_size
from keras_transformer.models.building.stack import (
    final_norm,
    first_layer,
    make_attention,
    make_blocks,
    make_feed_forward,
    make_norm,
    mask_positions,
    of_block,
    padding_input,
    resolve_residual,
    split_position,
    token_input,
)
from keras_transformer.positions import AttentionPosition, BoxPosition
from keras_transformer.utils.types import Activation, AttentionLike, PositionLike

# Devlin et al., BERT, arXiv 1810.04805, section 3.
SIZES = {
    "base": Size(12, 768, 12, 3072),
    "large": Size(24, 1024, 16, 4096),
}


def Encoder(
    size: str | Size,
    vocabulary_size: int,
    *,
    max_sequence_length: int = 512,
    num_segments: int | None = None,
    num_box_coordinates: int | None = None,
    embedding_dim: int | None = None,
    position: PositionLike = "learned",
    residual: str | Residual = "pre",
    first_residual: str | Residual | None = None,
    norm: str | keras.layers.Layer = "layer_norm",
    embedding_norm: bool = False,
    attention: AttentionLike = None,
    feedforward: str | keras.layers.Layer = "dense",
    activation: Activation = "gelu",
    dropout: float = 0.0,
    num_block_groups: int | None = None,
    blocks_per_group: int = 1,
    positions_from_mask: bool = False,
    name: str = "encoder",
) -> keras.Model:
    """A stack of encoder blocks over token ids.

    Args:
        size: "base", "large" (the measures of BERT), or a `Size`.
        vocabulary_size: int. V.
        max_sequence_length: int. Rows of a learned position embedding.
        num_segments: int, or None. Adds a learned embedding of the segment of each token, and the input "segment_ids"
            if there is more than one segment; BERT has 2. `text.Tokenizer.encode_pair` returns them.
        num_box_coordinates: int, or None. Adds the input "boxes", and learned embeddings of the position of a word on its
            page, in coordinates from 0 to this, exclusive: see `positions.BoxPosition`.
        embedding_dim: int, or None for that of the blocks. Width of the embeddings, of whose sum a dense layer makes the D
            channels of the blocks.
        position: "learned", "sinusoidal", "rotary", an instance, or None; or a pair, of which the first is added to the
            embedding and the second is inside attention.
        residual: name in `blocks.RESIDUALS`, or an instance to copy.
        first_residual: as `residual`, around the attention of the first block; None for the same.
        norm: "layer_norm", "rms_norm", "batch_norm", or a layer to copy.
        embedding_norm: bool. Whether the sum of the embeddings is normalized too, before its dropout, as in BERT.
        attention: a name in `attention.MECHANISMS`; or a layer like `MultiHeadAttention` to copy for each block,
            with its own position; or a list of these, which repeats over the blocks. With `LongformerAttention` of
            `max_global_tokens` the model takes "global_mask" too, bool `(B, T)`.
        feedforward: a name in `feedforward.FEEDFORWARDS`, or an instance to copy.
        activation: activation of a feed-forward that is given by name.
        dropout: float in [0, 1). Of the embedding, the attention weights, and the outputs of attention and feed-forward.
        num_block_groups: int, or None. Number of blocks with weights of their own; consecutive layers share a block, and
            each layer has its own cache. ALBERT has 1. Default None: a block for each layer.
        blocks_per_group: int that divides the number of layers. With more than 1, consecutive layers share a group of so
            many different blocks instead of a single block, and `num_block_groups` is the number of groups.
        positions_from_mask: bool. Whether positions that are added to the embedding count real tokens only, so that padding
            on the left changes nothing. The position object needs a row for -1, the position of padding: RoBERTa's has one.
        name: str.

    Returns:
        `keras.Model`: {"token_ids": int32 `(B, T)`, "padding_mask": bool `(B, T)`} to `(B, T, D)`; with several segments
        "segment_ids", int32 `(B, T)`, too; with `num_box_coordinates` "boxes", int32 `(B, T, 4)`. The mask may be None for
        rows without padding, unless `positions_from_mask` is set.

    Raises:
        ValueError: unknown name of a size or a part; `num_segments` below 1; `num_block_groups` above the number of layers;
            `blocks_per_group` that does not divide it.

    Example:

    >>> from keras_transformer.models import Size
    >>> Encoder(Size(2, 16, 2, 32), vocabulary_size=100).output_shape
    (None, None, 16)

    Reference: Vaswani et al., arXiv 1706.03762, section 3.1, with the options above; segments: Devlin et al., BERT,
    arXiv 1810.04805, section 3; embeddings of another width and shared blocks: Lan et al., ALBERT, arXiv 1909.11942,
    section 3.1.
    """
    size = get_size(size, SIZES)
    if num_segments is not None and num_segments < 1:
        raise ValueError(f"num_segments must be at least 1, or None. Received: {num_segments}")
    added, inside = split_position(position, max_sequence_length)
    embedding = _Embedding(vocabulary_size, num_segments, num_box_coordinates, added, positions_from_mask)
    residual = resolve_residual(residual, norm, DeepNormResidual.of_stack, size.num_layers)
    block_of = _Blocks(size, attention, inside, feedforward, activation, residual, first_residual, norm, dropout)
    blocks = make_blocks(block_of.block, size.num_layers, num_block_groups, blocks_per_group)
    first_norm = make_norm(norm, "embedding_norm") if embedding_norm else None
    input_layer, last_norm = first_layer(residual), final_norm(residual, norm)
    inputs = {"token_ids": token_input(), "padding_mask": padding_input(optional=not positions_from_mask)}
    x = embedding.embed(inputs, embedding_dim or size.hidden_dim)
    x = x if first_norm is None else first_norm(x)
    x = Dropout(dropout, name="embedding_dropout")(x)
    x = x if embedding_dim is None else keras.layers.Dense(size.hidden_dim, name="embedding_projection")(x)
    x = block_of.apply(x if input_layer is None else input_layer(x), blocks, inputs)
    return keras.Model(inputs, x if last_norm is None else last_norm(x), name=name)


class _Embedding(NamedTuple):
    """The sum of the embeddings of tokens, segments, boxes and positions; None for what is left out."""

    vocabulary_size: int
    num_segments: int | None
    num_box_coordinates: int | None
    position: keras.layers.Layer | None
    positions_from_mask: bool

    def embed(self, inputs: dict[str, keras.KerasTensor], width: int) -> keras.KerasTensor:
        """Returns the embedded tokens `(B, T, width)`; adds the inputs of segments and boxes."""
        table = keras.layers.ReversibleEmbedding(self.vocabulary_size, width, name="token_embedding")
        x = table(inputs["token_ids"])
        x = x if self.num_segments is None else add_segments(x, inputs, self.num_segments)
        x = x if self.num_box_coordinates is None else _add_boxes(x, inputs, self.num_box_coordinates)
        positions = {"positions": mask_positions(inputs["padding_mask"])} if self.positions_from_mask else {}
        return x if self.position is None else self.position(x, **positions)


class _Blocks(NamedTuple):
    """The parts of the blocks, each of which has copies of its own."""

    size: Size
    attention: AttentionLike
    position: AttentionPosition | None
    feedforward: str | keras.layers.Layer
    activation: Activation
    residual: str | Residual
    first_residual: str | Residual | None
    norm: str | keras.layers.Layer
    dropout: float

    def block(self, index: int) -> EncoderBlock:
        """Returns a new block."""
        return EncoderBlock(
            make_attention(self.size, of_block(self.attention, index), self.position, self.dropout),
            make_feed_forward(self.size.intermediate_dim, self.feedforward, self.activation),
            residual=self.residual,
            mixer_residual=self.first_residual if index == 0 else None,
            norm=self.norm,
            dropout=self.dropout,
            name=f"encoder_block_{index}",
        )

    def apply(
        self, x: keras.KerasTensor, blocks: Sequence[keras.layers.Layer], inputs: dict[str, keras.KerasTensor]
    ) -> keras.KerasTensor:
        """Returns the output of the blocks; adds the input "global_mask" for attention that takes it."""
        masks, layers = {"padding_mask": inputs["padding_mask"]}, range(self.size.num_layers)
        if any(getattr(of_block(self.attention, index), "max_global_tokens", 0) for index in layers):
            masks["global_mask"] = inputs["global_mask"] = padding_input("global_mask", optional=False)
        for block in blocks:
            x = block(x, **masks)
        return x


def add_segments(x: keras.KerasTensor, inputs: dict[str, keras.KerasTensor], num_segments: int) -> keras.KerasTensor:
    """Returns `x` with segment embeddings added; adds "segment_ids" to the inputs unless there is a single segment."""
    if num_segments > 1:
        inputs["segment_ids"] = token_input("segment_ids")
    segment_ids = inputs["segment_ids"] if num_segments > 1 else ops.zeros_like(inputs["token_ids"])
    segments = keras.layers.Embedding(num_segments, x.shape[-1], name="segment_embedding")
    return keras.layers.Add(name="token_and_segment")([x, segments(segment_ids)])


def _add_boxes(x, inputs, num_coordinates):
    """Adds box position embeddings, and the input "boxes"."""
    inputs["boxes"] = keras.Input((None, 4), dtype="int32", name="boxes")
    return BoxPosition(num_coordinates, name="box_position")(x, boxes=inputs["boxes"])
