"""RoBERTa."""

from __future__ import annotations

import keras

from keras_transformer.models.building.bert_encoder import bert_encoder
from keras_transformer.models.building.size import Size, get_size
from keras_transformer.models.text.encoders.encoder import SIZES
from keras_transformer.positions import Learned
from keras_transformer.utils.types import Activation


def RoBERTa(
    size: str | Size = "base",
    vocabulary_size: int = 50265,
    *,
    max_sequence_length: int = 512,
    num_segments: int | None = 1,
    padding_id: int = 1,
    activation: Activation = "gelu",
    dropout: float = 0.1,
    attention_dropout: float = 0.1,
    layer_norm_epsilon: float = 1e-5,
    positions_from_mask: bool = False,
    name: str = "roberta",
) -> keras.Model:
    """The encoder of RoBERTa, CamemBERT and XLM-RoBERTa: BERT's without segments, its positions offset by `padding_id + 1`.

    Args:
        size: "base", "large", or a `Size`.
        vocabulary_size: int. V. CamemBERT has 32,005 tokens, XLM-RoBERTa 250,002.
        max_sequence_length: int. Maximum number of tokens; the position embedding has `padding_id + 1` more rows.
        num_segments: int, or None; 1 adds one and the same vector to every token, and asks for no "segment_ids".
        padding_id: int >= 0. The token of padding; the position of the first token is the one after it.
        activation: activation of the feed-forward.
        dropout: float in [0, 1). Of the embedding, and of the outputs of attention and feed-forward.
        attention_dropout: float in [0, 1). Of the attention weights.
        layer_norm_epsilon: float > 0. Of every norm.
        positions_from_mask: bool. Whether positions count real tokens only, as in the published code: then rows may be
            padded on the left.
        name: str.

    Returns:
        `keras.Model`: {"token_ids": int32 `(B, T)`, "padding_mask": bool `(B, T)`} to `(B, T, D)`; with several segments
        "segment_ids", int32 `(B, T)`, too.

    Raises:
        ValueError: unknown size name.

    Example:

    >>> from keras_transformer.models import Size
    >>> RoBERTa(Size(2, 16, 2, 32), vocabulary_size=100).output_shape
    (None, None, 16)

    Reference: Liu et al., RoBERTa, arXiv 1907.11692, section 3.1; positions, and the single segment, as in its published
    code. There positions count the tokens that are no padding; here all of them by default, which is the same for texts that
    are padded on the right and needs no sum over the mask.
    """
    return bert_encoder(
        get_size(size, SIZES),
        vocabulary_size,
        num_segments=num_segments,
        position=Learned(max_sequence_length, offset=padding_id + 1, name="position_embedding"),
        attention_dropout=attention_dropout,
        activation=activation,
        dropout=dropout,
        layer_norm_epsilon=layer_norm_epsilon,
        positions_from_mask=positions_from_mask,
        name=name,
    )
