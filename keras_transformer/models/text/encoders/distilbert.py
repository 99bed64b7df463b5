"""DistilBERT."""

from __future__ import annotations

import keras

from keras_transformer.models.building.size import Size, get_size
from keras_transformer.models.text.encoders.bert import BERT
from keras_transformer.utils.types import Activation

# Sanh et al., DistilBERT, arXiv 1910.01108, section 3: half the layers of BERT base.
SIZES = {
    "base": Size(6, 768, 12, 3072),
}


def DistilBERT(
    size: str | Size = "base",
    vocabulary_size: int = 30522,
    *,
    max_sequence_length: int = 512,
    activation: Activation = "gelu",
    dropout: float = 0.1,
    attention_dropout: float = 0.1,
    name: str = "distilbert",
) -> keras.Model:
    """The encoder of DistilBERT: BERT's, without segments and with half the layers.

    Args:
        size: "base", or a `Size`.
        vocabulary_size: int. V.
        max_sequence_length: int. Rows of the position embedding.
        activation: activation of the feed-forward.
        dropout: float in [0, 1). Of the embedding, and of the outputs of attention and feed-forward.
        attention_dropout: float in [0, 1). Of the attention weights.
        name: str.

    Returns:
        `keras.Model`: {"token_ids": int32 `(B, T)`, "padding_mask": bool `(B, T)`} to `(B, T, D)`.

    Raises:
        ValueError: unknown size name.

    Example:

    >>> from keras_transformer.models import Size
    >>> DistilBERT(Size(2, 16, 2, 32), vocabulary_size=100).output_shape
    (None, None, 16)

    Reference: Sanh et al., DistilBERT, arXiv 1910.01108, section 3. In its published code dropout follows attention weights
    and feed-forward only; here also the output of attention.
    """
    return BERT(
        get_size(size, SIZES),
        vocabulary_size,
        max_sequence_length=max_sequence_length,
        num_segments=None,
        activation=activation,
        dropout=dropout,
        attention_dropout=attention_dropout,
        name=name,
    )
