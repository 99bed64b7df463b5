"""MPNet."""

from __future__ import annotations

import keras

from keras_transformer.models.building.bert_encoder import bert_encoder
from keras_transformer.models.building.size import Size, get_size
from keras_transformer.models.text.encoders.encoder import SIZES
from keras_transformer.positions import Learned, RelativeBias
from keras_transformer.utils.types import Activation


def MPNet(
    size: str | Size = "base",
    vocabulary_size: int = 30527,
    *,
    max_sequence_length: int = 512,
    padding_id: int = 1,
    num_buckets: int = 32,
    activation: Activation = "gelu",
    dropout: float = 0.1,
    layer_norm_epsilon: float = 1e-12,
    positions_from_mask: bool = False,
    name: str = "mpnet",
) -> keras.Model:
    """The encoder of MPNet: BERT's without segments, with relative position biases besides learned positions.

    Args:
        size: "base", "large", or a `Size`.
        vocabulary_size: int. V.
        max_sequence_length: int. Maximum number of tokens; the position embedding has `padding_id + 1` more rows.
        padding_id: int >= 0. The token of padding; the position of the first token is the one after it.
        num_buckets: int. Buckets of the relative biases, which all blocks share.
        activation: activation of the feed-forward.
        dropout: float in [0, 1). Of the embedding, the attention weights, and the outputs of attention and feed-forward.
        layer_norm_epsilon: float > 0. Of every norm.
        positions_from_mask: bool. Whether positions count real tokens only, as in the published code: then rows may be
            padded on the left.
        name: str.

    Returns:
        `keras.Model`: {"token_ids": int32 `(B, T)`, "padding_mask": bool `(B, T)`} to `(B, T, D)`.

    Raises:
        ValueError: unknown size name.

    Example:

    >>> from keras_transformer.models import Size
    >>> MPNet(Size(2, 16, 2, 32), vocabulary_size=100).output_shape
    (None, None, 16)

    Reference: Song et al., MPNet, arXiv 2004.09297, section 3.1; positions as in its published code: see `RoBERTa`.
    """
    table = Learned(max_sequence_length, offset=padding_id + 1, name="position_embedding")
    return bert_encoder(
        get_size(size, SIZES),
        vocabulary_size,
        position=(table, RelativeBias(num_buckets, name="relative_bias")),
        layer_norm_epsilon=layer_norm_epsilon,
        activation=activation,
        dropout=dropout,
        positions_from_mask=positions_from_mask,
        name=name,
    )
