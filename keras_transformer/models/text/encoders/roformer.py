"""RoFormer."""

from __future__ import annotations

import keras

from keras_transformer.models.building.bert_encoder import bert_encoder
from keras_transformer.models.building.size import Size, get_size
from keras_transformer.models.building.stack import make_attention
from keras_transformer.positions import Rotary
from keras_transformer.utils.types import Activation

# As published with the weights for Chinese.
SIZES = {
    "small": Size(6, 384, 6, 1536),
    "base": Size(12, 768, 12, 3072),
}


def RoFormer(
    size: str | Size = "base",
    vocabulary_size: int = 50000,
    *,
    embedding_dim: int | None = None,
    num_segments: int | None = 2,
    activation: Activation = "gelu",
    dropout: float = 0.1,
    attention_dropout: float = 0.1,
    layer_norm_epsilon: float = 1e-12,
    rotate_values: bool = False,
    name: str = "roformer",
) -> keras.Model:
    """The encoder of RoFormer: BERT's, with rotary positions in attention instead of a table.

    Args:
        size: "small", "base", or a `Size`.
        vocabulary_size: int. V.
        embedding_dim: int, or None for that of the blocks. Width of the embeddings, which a dense layer takes to that of the
            blocks.
        num_segments: int, or None for no "segment_ids".
        activation: activation of the feed-forward.
        dropout: float in [0, 1). Of the embedding, and of the outputs of attention and feed-forward.
        attention_dropout: float in [0, 1). Of the attention weights.
        layer_norm_epsilon: float > 0. Of every norm.
        rotate_values: bool. Whether values are rotated too, as in `rotary_value` of its code.
        name: str.

    Returns:
        `keras.Model`: {"token_ids": int32 `(B, T)`, "padding_mask": bool `(B, T)`, "segment_ids": int32 `(B, T)`} to
        `(B, T, D)`. Any length.

    Raises:
        ValueError: unknown size name.

    Example:

    >>> from keras_transformer.models import Size
    >>> RoFormer(Size(2, 16, 2, 32), vocabulary_size=100).output_shape
    (None, None, 16)

    Reference: Su et al., RoFormer, arXiv 2104.09864, section 3.2.2; queries and keys are rotated.
    """
    size = get_size(size, SIZES)
    return bert_encoder(
        size,
        vocabulary_size,
        num_segments=num_segments,
        embedding_dim=embedding_dim,
        position=None,
        attention=make_attention(size, position=Rotary(rotate_values=rotate_values), dropout=attention_dropout),
        activation=activation,
        dropout=dropout,
        layer_norm_epsilon=layer_norm_epsilon,
        name=name,
    )
