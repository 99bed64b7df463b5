"""The graph of encoder-decoders: a decoder with cross-attention to an encoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Unpack

import keras
from keras import ops

from keras_transformer.models.building.stack import padding_input, token_input
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Tensor


class Side(NamedTuple):
    """The layers of an encoder or a decoder, in the order of computation.

    Attributes:
        front: layers from the input to the first block; None items are skipped.
        blocks: blocks in order.
        end: layers after the last block; None items are skipped.
    """

    front: Sequence[keras.layers.Layer | None]
    blocks: Sequence[keras.layers.Layer]
    end: Sequence[keras.layers.Layer | None]


def encoder_decoder(encoder: Side, decoder: Side, *, name: str, source: keras.KerasTensor | None = None) -> keras.Model:
    """The graph of an encoder-decoder.

    Args:
        encoder: `Side` of `EncoderBlock`s.
        decoder: `Side` of `DecoderBlock`s with cross-attention.
        name: str.
        source: symbolic input of an encoder without token ids, which has no padding mask; None for token ids.

    Returns:
        `keras.Model`: {"source_token_ids", "target_token_ids": int32 `(B, S)`, `(B, T)`; "source_padding_mask",
        "target_padding_mask": bool}, or {the name of `source`, "target_token_ids", "target_padding_mask"}, to `(B, T, D)`.
    """
    inputs, source_mask = {}, None
    if source is None:
        source_mask = inputs["source_padding_mask"] = padding_input("source_padding_mask")
    encoder_input = token_input("source_token_ids") if source is None else source
    inputs[encoder_input.name] = encoder_input
    inputs["target_token_ids"] = token_input("target_token_ids")
    inputs["target_padding_mask"] = padding_input("target_padding_mask")
    encoder_output = encode(encoder, encoder_input, source_mask)
    x = _through(decoder.front, inputs["target_token_ids"])
    for block in decoder.blocks:
        x = block(x, encoder_output, padding_mask=inputs["target_padding_mask"], encoder_padding_mask=source_mask)
    return keras.Model(inputs, _through(decoder.end, x), name=name)


def encode(encoder: Side, source: keras.KerasTensor, padding_mask: keras.KerasTensor | None) -> keras.KerasTensor:
    """The output of an encoder for a symbolic input, `(B, S, D)`."""
    x = _through(encoder.front, source)
    for block in encoder.blocks:
        x = block(x, padding_mask=padding_mask)
    return _through(encoder.end, x)


def token_tables(
    width: int, source_count: int, target_count: int | None, is_shared: bool
) -> tuple[keras.layers.ReversibleEmbedding, keras.layers.ReversibleEmbedding]:
    """The token embeddings of source and target, shared or separate.

    Args:
        width: int. Width of the embeddings.
        source_count: int. Vocabulary size of the source.
        target_count: int, or None for `source_count`.
        is_shared: bool. Whether both share one embedding.

    Raises:
        ValueError: a shared embedding for different vocabularies.
    """
    target_count = target_count or source_count
    if is_shared and target_count != source_count:
        raise ValueError(
            f"Tied embeddings need one vocabulary. Received: {source_count} source tokens, {target_count} target "
            "tokens."
        )

    def table(count, name):
        # Unit variance after the scale of √D.
        initializer = keras.initializers.RandomNormal(stddev=width**-0.5)
        return keras.layers.ReversibleEmbedding(count, width, embeddings_initializer=initializer, name=name)

    if is_shared:
        shared = table(source_count, "token_embedding")
        return shared, shared
    return table(source_count, "source_token_embedding"), table(target_count, "target_token_embedding")


def token_encoder(encoder: Side, *, name: str) -> keras.Model:
    """The graph of an encoder: {"token_ids": int32 `(B, T)`, "padding_mask": bool `(B, T)`} to `(B, T, D)`."""
    inputs = {"token_ids": token_input(), "padding_mask": padding_input()}
    return keras.Model(inputs, encode(encoder, *inputs.values()), name=name)


def read_twice(backbone: keras.Model, start_id: int) -> keras.Model:
    """An encoder-decoder for classification: encoder and decoder read the same text.

    The decoder reads the text shifted right, after `start_id`. Its last real token attends to the whole text in the encoder
    and to all previous tokens in the decoder: use it with `pooling="last"`.

    Args:
        backbone: `keras.Model` of an encoder-decoder, such as `models.BART`. Its layers are used, not copied.
        start_id: int: first token of the decoder.

    Returns:
        `keras.Model`: {"token_ids": int32 `(B, T)`, "padding_mask": bool `(B, T)`} to `(B, T, D)`.

    Example:

    >>> from keras_transformer.models import BART, Size
    >>> read_twice(BART(Size(1, 16, 2, 32), vocabulary_size=100), start_id=2).output_shape
    (None, None, 16)

    Reference: Lewis et al., BART, arXiv 1910.13461, section 3.1.
    """
    token_ids, padding_mask = token_input(), padding_input()
    x = backbone(
        {
            "source_token_ids": token_ids,
            "source_padding_mask": padding_mask,
            "target_token_ids": ShiftRight(start_id, name="shift_right")(token_ids),
            "target_padding_mask": padding_mask,
        }
    )
    return keras.Model({"token_ids": token_ids, "padding_mask": padding_mask}, x, name=f"{backbone.name}_read_twice")


@serializable
class ShiftRight(keras.layers.Layer):
    """Shifts tokens right by one: `y_0 = start_id`, `y_t = x_(t-1)`.

    Args:
        start_id: int.

    Call arguments:
        inputs: int32 `(B, T)`.

    Returns:
        int32 `(B, T)`.

    Example:

    >>> import numpy as np
    >>> ShiftRight(2)(np.array([[7, 8, 9]])).numpy().tolist()
    [[2, 7, 8]]
    """

    def __init__(self, start_id: int, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.start_id = start_id

    def call(self, inputs: Tensor) -> Tensor:
        start = ops.full_like(inputs[:, :1], self.start_id)
        return ops.concatenate([start, inputs[:, :-1]], axis=1)

    def get_config(self) -> Config:
        return {**super().get_config(), "start_id": self.start_id}


def _through(layers, x):
    for layer in layers:
        x = x if layer is None else layer(x)
    return x
