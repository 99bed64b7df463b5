"""GPT-2."""

from __future__ import annotations

import keras

from keras_transformer.attention import MultiHeadAttention, SoftmaxAttention
from keras_transformer.layers.norms import LayerNormalization
from keras_transformer.models.building.size import Size, get_size
from keras_transformer.models.text.decoders.decoder import SIZES, Decoder
from keras_transformer.utils.types import Activation


def GPT2(
    size: str | Size = "small",
    vocabulary_size: int = 50257,
    *,
    max_sequence_length: int = 1024,
    activation: Activation = "gelu_tanh",
    dropout: float = 0.1,
    embedding_dropout: float = 0.1,
    attention_dropout: float = 0.1,
    layer_norm_epsilon: float = 1e-5,
    scoring: str | keras.layers.Layer = "scaled_dot",
    packed: bool = False,
    name: str = "gpt2",
) -> keras.Model:
    """The decoder of GPT-2: pre-norm blocks over the sum of token and learned position. `tasks.LanguageModel` is its head.

    Args:
        size: "small", "medium", "large", "xl", or a `Size`.
        vocabulary_size: int. V.
        max_sequence_length: int. Rows of the position embedding.
        activation: activation of the feed-forward.
        dropout: float in [0, 1). Of what attention and feed-forward give.
        embedding_dropout: float in [0, 1).
        attention_dropout: float in [0, 1). Of the attention weights.
        layer_norm_epsilon: float > 0. Of every norm.
        scoring: a name in `attention.SCORINGS`, an instance, or a list of either, which repeats over the blocks.
        packed: bool. Whether it takes "segment_ids" and "positions", int32 `(B, T)`, too: see `Decoder`. With padding on the
            left, positions that begin at the first real token give the results of the text alone; without them positions
            count the padding, as in transformers without `position_ids`.
        name: str.

    Returns:
        `keras.Model`: {"token_ids": int32 `(B, T)`, "padding_mask": bool `(B, T)`} to `(B, T, D)`.

    Raises:
        ValueError: unknown size name.

    Example:

    >>> from keras_transformer.models import Size
    >>> GPT2(Size(2, 16, 2, 32), vocabulary_size=100).output_shape
    (None, None, 16)

    Reference: Radford et al., Language Models are Unsupervised Multitask Learners, section 2.3.
    """
    size = get_size(size, SIZES)
    width = size.hidden_dim // size.num_heads
    scorings = scoring if isinstance(scoring, (list, tuple)) else [scoring]
    return Decoder(
        size,
        vocabulary_size,
        max_sequence_length=max_sequence_length,
        norm=LayerNormalization(epsilon=layer_norm_epsilon),
        attention=[
            MultiHeadAttention(size.num_heads, width, mechanism=SoftmaxAttention(each, attention_dropout))
            for each in scorings
        ],
        activation=activation,
        dropout=dropout,
        embedding_dropout=embedding_dropout,
        packed=packed,
        name=name,
    )
