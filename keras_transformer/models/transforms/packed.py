"""A causal backbone for packed rows: several documents in a row, none of which sees another."""

from __future__ import annotations

import keras
from keras import ops

from keras_transformer.attention.masks import segment_mask
from keras_transformer.backend import keras_private
from keras_transformer.backend.call_arguments import takes
from keras_transformer.models.building.stack import padding_input, token_input
from keras_transformer.models.transforms.graph_walk import walk
from keras_transformer.models.transforms.stepwise import Stepwise

_INPUTS = {"token_ids", "padding_mask"}
_PACKED_INPUTS = {*_INPUTS, "segment_ids", "positions"}


def packed(backbone: keras.Model) -> keras.Model:
    """Returns the same backbone with shared weights for packed rows, those of `data.pack`.

    The attention of each block is limited to the tokens of a document, and positions count from its beginning: a row
    computes what each of its documents gives alone.

    Args:
        backbone: Functional `keras.Model` of "token_ids" and "padding_mask" to `(B, T, D)`, such as a decoder of `models` or
            the `backbone` of a checkpoint's `tasks.LanguageModel`. It is not changed.

    Returns:
        `keras.Model`: {"token_ids", "segment_ids", "positions": int32 `(B, T)`, "padding_mask": bool `(B, T)`} to
        `(B, T, D)`, with the layers of `backbone`: training one trains both. `backbone` itself if it has these inputs.

    Raises:
        ValueError: the model has other inputs, an operation that mixes tokens, or a layer with a cache that takes no
            attention mask; a mixer that supports no attention mask.

    Example:

    >>> import numpy as np
    >>> from keras_transformer import models
    >>> model = packed(models.Llama(models.Size(1, 8, 2, 16), vocabulary_size=10))
    >>> sorted(tensor.name for tensor in model.inputs)
    ['padding_mask', 'positions', 'segment_ids', 'token_ids']

    Reference: Krell et al., arXiv 2107.02027, section 3.2.
    """
    symbolic = {tensor.name: tensor for tensor in backbone.inputs}
    if set(symbolic) == _PACKED_INPUTS:
        return backbone
    if set(symbolic) != _INPUTS:
        raise ValueError(
            f"{backbone.name!r} must take 'token_ids' and 'padding_mask' to be packed; it takes {sorted(symbolic)}."
        )
    Stepwise(backbone)  # Raises an error for operations that mix tokens outside of the layers with a cache.
    inputs = {name: token_input(name) for name in ("token_ids", "segment_ids", "positions")}
    inputs["padding_mask"] = padding_input()
    mask = segment_mask(inputs["segment_ids"])

    def call(node, layer, args, kwargs):
        if hasattr(layer, "init_cache"):
            if takes(layer, "segment_ids"):
                kwargs["segment_ids"] = inputs["segment_ids"]
            elif takes(layer, "attention_mask"):
                kwargs["attention_mask"] = mask
            else:
                raise ValueError(
                    f"{layer.name!r} of {backbone.name!r} takes no attention mask: its rows cannot be packed."
                )
        if takes(layer, "positions"):
            kwargs["positions"] = inputs["positions"]
        return layer(*args, **kwargs)

    values = {id(tensor): inputs[name] for name, tensor in symbolic.items()}
    walk(keras_private.nodes_in_order(backbone), values, call)
    model = keras.Model(inputs, values[id(backbone.output)], name=f"packed_{backbone.name}")
    # A graph is built from shapes alone: a mixer that supports no attention mask raises its error in a call.
    zeros = ops.zeros((1, 2), "int32")
    model({"token_ids": zeros, "padding_mask": zeros == 0, "segment_ids": zeros + 1, "positions": ops.arange(2)[None]})
    return model
