"""S4: a decoder of state-space layers."""

from __future__ import annotations

import keras

from keras_transformer.attention.arguments import positive
from keras_transformer.blocks import DecoderBlock, DeepNormResidual, Residual
from keras_transformer.models.building.size import Size, get_size
from keras_transformer.models.building.stack import (
    final_norm,
    first_layer,
    make_attention,
    make_feed_forward,
    resolve_residual,
    token_model,
)
from keras_transformer.recurrence import RECURRENCES
from keras_transformer.recurrence.state_spaces.s4_layer import S4Layer
from keras_transformer.utils.serialization import resolve
from keras_transformer.utils.types import Activation, Config

# Gu et al., the language model of WikiText-103, with two mixers per block.
SIZES = {
    "wikitext": Size(16, 1024, 1, 4096),
}
NUM_MIXERS = {"wikitext": 2}


def S4Model(
    size: str | Size,
    vocabulary_size: int,
    *,
    state_space: str | keras.layers.Layer = "s4",
    num_mixers: int | None = None,
    residual: str | Residual = "pre",
    norm: str | keras.layers.Layer = "layer_norm",
    feedforward: str | keras.layers.Layer = "dense",
    activation: Activation = "gelu",
    dropout: float = 0.0,
    name: str = "s4",
) -> keras.Model:
    """A decoder of state-space layers: parallel in training, with a state of fixed size in generation.

    Args:
        size: "wikitext", or a `Size`; its `num_heads` is not used.
        vocabulary_size: int. V.
        state_space: "s4", "s4d", or an instance to copy.
        num_mixers: int >= 1, or None for 2 in "wikitext" and 1 otherwise. Number of consecutive state-space layers in a
            block, before its feed-forward.
        residual: name in `blocks.RESIDUALS`, or an instance to copy.
        norm: "layer_norm", "rms_norm", "batch_norm", or a layer to copy.
        feedforward: "dense", "gated", or an instance to copy.
        activation: activation of a feed-forward that is given by name.
        dropout: float in [0, 1). Of the embedding, and of the outputs of mixer and feed-forward.
        name: str.

    Returns:
        `keras.Model`: {"token_ids": int32 `(B, T)`, "padding_mask": bool `(B, T)`} to `(B, T, D)`.

    Raises:
        ValueError: unknown name of a size or a part; `num_mixers` below 1.

    Example:

    >>> from keras_transformer.models import Size
    >>> S4Model(Size(2, 16, 1, 32), vocabulary_size=100).output_shape
    (None, None, 16)

    Reference: Gu et al., arXiv 2111.00396, section 4.3: the Transformer with two S4 layers per block instead of
    attention, for about as many parameters. "wikitext" has 16 blocks of width 1024. The adaptive embeddings of the paper are
    not implemented.
    """
    if num_mixers is None:
        num_mixers = NUM_MIXERS[size] if isinstance(size, str) and size in NUM_MIXERS else 1
    positive("num_mixers", num_mixers)
    size = get_size(size, SIZES)
    choices = {name: cls for name, cls in RECURRENCES.items() if issubclass(cls, S4Layer)}
    mixer = resolve(state_space, choices, S4Layer)
    residual = resolve_residual(residual, norm, DeepNormResidual.of_stack, size.num_layers)
    options: Config = {"residual": residual, "norm": norm, "dropout": dropout}
    blocks = []
    for index in range(size.num_layers):
        for place in range(num_mixers - 1):
            blocks.append(
                DecoderBlock(make_attention(size, mixer), None, name=f"mixer_block_{index}_{place}", **options)
            )
        feed_forward = make_feed_forward(size.intermediate_dim, feedforward, activation)
        blocks.append(DecoderBlock(make_attention(size, mixer), feed_forward, name=f"decoder_block_{index}", **options))
    embedding = keras.layers.ReversibleEmbedding(vocabulary_size, size.hidden_dim, name="token_embedding")
    return token_model(
        embedding,
        None,
        blocks,
        final_norm(residual, norm),
        dropout=dropout,
        packed=False,
        name=name,
        input_layer=first_layer(residual),
    )
