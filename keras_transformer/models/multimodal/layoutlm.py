"""LayoutLM."""

from __future__ import annotations

import keras

from keras_transformer.models.building.bert_encoder import bert_encoder
from keras_transformer.models.building.size import Size, get_size
from keras_transformer.models.text.encoders.encoder import SIZES
from keras_transformer.utils.types import Activation


def LayoutLM(
    size: str | Size = "base",
    vocabulary_size: int = 30522,
    *,
    max_sequence_length: int = 512,
    num_box_coordinates: int | None = 1024,
    num_segments: int | None = 2,
    activation: Activation = "gelu",
    dropout: float = 0.1,
    attention_dropout: float = 0.1,
    layer_norm_epsilon: float = 1e-12,
    name: str = "layoutlm",
) -> keras.Model:
    """The encoder of LayoutLM: BERT's, with embeddings of the position of each word on its page.

    Args:
        size: "base", "large", or a `Size`.
        vocabulary_size: int. V.
        max_sequence_length: int. The table of positions in the text.
        num_box_coordinates: int. Coordinates on the page are from 0 to this, exclusive; those of the published weights are
            from 0 to 1,000.
        num_segments: int, or None for no "segment_ids".
        activation: activation of the feed-forward.
        dropout: float in [0, 1). Of the embedding, and of the outputs of attention and feed-forward.
        attention_dropout: float in [0, 1). Of the attention weights.
        layer_norm_epsilon: float > 0. Of every norm.
        name: str.

    Returns:
        `keras.Model`: {"token_ids": int32 `(B, T)`, "padding_mask": bool `(B, T)`, "segment_ids": int32 `(B, T)`, "boxes":
        int32 `(B, T, 4)`: left, top, right, bottom} to `(B, T, D)`.

    Raises:
        ValueError: unknown size name.

    Example:

    >>> from keras_transformer.models import Size
    >>> model = LayoutLM(Size(2, 16, 2, 32), vocabulary_size=100)
    >>> model.input["boxes"].shape, model.output_shape
    ((None, None, 4), (None, None, 16))

    Reference: Xu et al., LayoutLM, arXiv 1912.13318, section 2; without the embedding of images, which its published code
    leaves to the head of a task.
    """
    return bert_encoder(
        get_size(size, SIZES),
        vocabulary_size,
        max_sequence_length=max_sequence_length,
        num_segments=num_segments,
        num_box_coordinates=num_box_coordinates,
        attention_dropout=attention_dropout,
        activation=activation,
        dropout=dropout,
        layer_norm_epsilon=layer_norm_epsilon,
        name=name,
    )
