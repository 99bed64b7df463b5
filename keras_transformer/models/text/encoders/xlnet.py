"""XLNet."""

from __future__ import annotations

import keras

from keras_transformer.attention import TwoStreamAttention
from keras_transformer.blocks import EncoderBlock, QueryStream, TakeQueryStream
from keras_transformer.feedforward import DenseFeedForward
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.norms import LayerNormalization
from keras_transformer.models.building.size import Size, get_size
from keras_transformer.models.building.stack import padding_input, token_input
from keras_transformer.models.text.encoders.encoder import SIZES
from keras_transformer.utils.types import Activation


def XLNet(
    size: str | Size = "base",
    vocabulary_size: int = 32000,
    *,
    causal: bool = False,
    use_segments: bool = True,
    activation: Activation = "gelu",
    dropout: float = 0.1,
    attention_dropout: float = 0.1,
    layer_norm_epsilon: float = 1e-12,
    name: str = "xlnet",
) -> keras.Model:
    """The encoder of XLNet: post-norm blocks with relative positions and relative segments.

    This model is the content stream, for fine-tuning; `with_query_stream` adds the query stream for pretraining. Padding may
    be on the left, as with the published weights, or on the right: the outputs of real tokens are equal. Texts end with
    <sep> and <cls>, which has segment 2 in the published weights; the output at <cls> represents the text.

    Args:
        size: "base", "large", or a `Size`.
        vocabulary_size: int. V.
        causal: bool. Whether attention is causal. Default False, as published.
        use_segments: bool. Whether the model takes "segment_ids".
        activation: activation of the feed-forward.
        dropout: float in [0, 1). Of the embedding, the outputs of attention and feed-forward, the hidden layer of the
            feed-forward, and the output.
        attention_dropout: float in [0, 1). Of the attention weights.
        layer_norm_epsilon: float > 0. Of every norm.
        name: str.

    Returns:
        `keras.Model`: {"token_ids": int32 `(B, T)`, "padding_mask": bool `(B, T)`, "segment_ids": int32 `(B, T)`} to
        `(B, T, D)`. Any length.

    Raises:
        ValueError: unknown size name.

    Example:

    >>> from keras_transformer.models import Size
    >>> XLNet(Size(2, 16, 2, 32), vocabulary_size=100).output_shape
    (None, None, 16)

    Reference: Yang et al., XLNet, arXiv 1906.08237, section 2; sizes: section 3.1. `with_memory` adds the memory of
    previous segments. Not implemented: the reversed half of each batch.
    """
    size = get_size(size, SIZES)
    # Layers
    embedding = keras.layers.ReversibleEmbedding(vocabulary_size, size.hidden_dim, name="token_embedding")
    blocks = [
        EncoderBlock(
            _attention(size, causal, use_segments, attention_dropout),
            DenseFeedForward(size.intermediate_dim, activation, dropout=dropout, name="feedforward"),
            residual="post",
            norm=LayerNormalization(epsilon=layer_norm_epsilon),
            dropout=dropout,
            name=f"encoder_block_{index}",
        )
        for index in range(size.num_layers)
    ]
    # Graph
    inputs = {"token_ids": token_input(), "padding_mask": padding_input()}
    if use_segments:
        inputs["segment_ids"] = token_input("segment_ids")
    x = embedding(inputs["token_ids"])
    x = Dropout(dropout, name="embedding_dropout")(x)
    known = {key: value for key, value in inputs.items() if key != "token_ids"}
    for block in blocks:
        x = block(x, **known)
    return keras.Model(inputs, Dropout(dropout, name="output_dropout")(x), name=name)


def _attention(size: Size, causal: bool, use_segments: bool, dropout: float) -> TwoStreamAttention:
    return TwoStreamAttention(
        size.num_heads,
        size.hidden_dim // size.num_heads,
        causal=causal,
        use_segments=use_segments,
        dropout=dropout,
        name="self_attention",
    )


def with_query_stream(backbone: keras.Model, *, name: str | None = None) -> keras.Model:
    """Two-stream `XLNet`: predicts tokens at target positions without access to their content.

    Args:
        backbone: `XLNet`. Its layers are used, not copied.
        name: str, or None for that of the backbone.

    Returns:
        `keras.Model`: the backbone's inputs with "permutation_mask", bool `(B, T, T)`, True = the first token comes after
        the second in the factorization order and may attend to it; and "targets", bool `(B, P, T)`, one-hot positions of
        the targets, to `(B, P, D)`. `data.permute_tokens` computes both.

    Raises:
        ValueError: the backbone is no `XLNet`.

    Example:

    >>> from keras_transformer.models import Size
    >>> model = with_query_stream(XLNet(Size(2, 16, 2, 32), vocabulary_size=100))
    >>> sorted(model.input), model.output_shape
    (['padding_mask', 'permutation_mask', 'segment_ids', 'targets', 'token_ids'], (None, None, 16))

    Reference: Yang et al., XLNet, arXiv 1906.08237, section 2.3. For a target that attends to no token,
    attention returns zeros; the published code returns the mean of all tokens, the target included. transformers'
    `perm_mask` is 1 where "permutation_mask" is False; its `target_mapping` is "targets".
    """
    layers = {layer.name: layer for layer in backbone.layers}
    blocks = [layer for layer in backbone.layers if isinstance(layer, EncoderBlock)]
    if not blocks or not all(isinstance(block.mixer, TwoStreamAttention) for block in blocks):
        raise ValueError(f"{backbone.name!r} is no XLNet: its blocks have no TwoStreamAttention.")
    inputs = dict(backbone.input)
    inputs["permutation_mask"] = keras.Input((None, None), dtype="bool", name="permutation_mask")
    inputs["targets"] = keras.Input((None, None), dtype="bool", name="targets")
    content = layers["token_embedding"](inputs["token_ids"])
    known = {key: value for key, value in inputs.items() if key != "token_ids"}
    streams = QueryStream(name="query_stream")(content, **known)
    x = layers["embedding_dropout"](streams.pop("inputs"))
    for block in blocks:
        x = block(x, **streams)
    x = TakeQueryStream(name="found_targets")(x, inputs["targets"])
    return keras.Model(inputs, layers["output_dropout"](x), name=name or backbone.name)
