"""Decoders that read and generate texts of any length, with attention sinks and a window."""

from __future__ import annotations

from typing import Any

import keras

from keras_transformer.attention import MultiHeadAttention, SoftmaxAttention, StreamingAttention
from keras_transformer.backend.keras_private import flatten_layers
from keras_transformer.utils.serialization import model_record, serialize
from keras_transformer.utils.types import Config

_SELF_ATTENTION = "self_attention"
# Attributes of a model besides its weights.
_COMPANIONS = ("processor", "tokenizer")


def with_streaming(model: keras.Model, window: int = 1020, num_sinks: int = 4) -> keras.Model:
    """A copy of a decoder with StreamingLLM's attention: its cache has a fixed size, and texts have no longest length.

    Full attention in the blocks becomes `attention.StreamingAttention`; windows and recurrences stay. Up to
    `num_sinks + window` tokens, the copy computes what the model computes. It is for models with rotary positions, which
    are trained without further change.

    Args:
        model: a decoder, such as `models.Llama`, or a `tasks.LanguageModel` of one.
        window: int >= 2. The number of last tokens that each token attends to.
        num_sinks: int >= 0. The number of first tokens that each token attends to.

    Returns:
        `keras.Model` of the class of `model`, with weights of its own.

    Raises:
        ValueError: no block has full attention; attention with learned sinks, or with a position that has biases.

    Example:

    >>> from keras_transformer import models
    >>> model = with_streaming(models.Decoder(models.Size(1, 8, 2, 16), 50, position="rotary"), window=12)
    >>> cache = models.Stepwise(model).init_cache(batch_size=1, max_length=10_000)
    >>> sorted({tuple(tensor.shape) for tensor in cache.values()})
    [(1, 2, 4, 4), (1, 11, 2, 4)]

    Reference: Xiao et al., Efficient Streaming Language Models with Attention Sinks, arXiv 2309.17453, section 3.2.
    """
    full = [layer for layer in flatten_layers(model) if _is_full(layer)]
    if not full:
        raise ValueError(f"{model.name!r} has no blocks with full self-attention to replace.")
    for layer in full:
        if layer.mechanism.use_sinks or (layer.position is not None and layer.position.needs):
            raise ValueError(f"{layer.path!r} has learned sinks, or a position that adds biases to the scores.")
    record = _replaced(model_record(model), window, num_sinks)
    copy = keras.saving.deserialize_keras_object(record, safe_mode=False)
    if not copy.built:
        copy.build(model.input_shape)
    copy.set_weights(model.get_weights())
    for name in _COMPANIONS:
        if hasattr(model, name):
            setattr(copy, name, getattr(model, name))
    return copy


def _is_full(layer: keras.layers.Layer) -> bool:
    is_self_attention = type(layer) is MultiHeadAttention and layer.name == _SELF_ATTENTION
    return is_self_attention and type(layer.mechanism) is SoftmaxAttention


def _replaced(record: Any, window: int, num_sinks: int) -> Any:
    """Copies the config of a model with the mechanism of full self-attention replaced."""
    if isinstance(record, (list, tuple)):
        return type(record)(_replaced(value, window, num_sinks) for value in record)
    if not isinstance(record, dict):
        return record
    copied = {name: _replaced(value, window, num_sinks) for name, value in record.items()}
    config = copied.get("config") or {}
    if record.get("class_name") == "MultiHeadAttention" and config.get("name") == _SELF_ATTENTION:
        mechanism = _streaming(config, window, num_sinks)
        if mechanism is not None:
            copied["config"] = {**config, "mechanism": mechanism, "dropout": 0.0, "flash_attention": None}
    return copied


def _streaming(config: Config, window: int, num_sinks: int) -> Config | None:
    """Returns the config of the mechanism in place of that of a `MultiHeadAttention`; None if that is not full attention."""
    mechanism = config["mechanism"]
    options = {"dropout": config["dropout"], "seed": config["seed"]}
    if isinstance(mechanism, dict):
        if mechanism["class_name"] != "SoftmaxAttention":
            return None
        options = {name: mechanism["config"][name] for name in ("scoring", "dropout", "seed")}
    elif mechanism != "softmax":
        return None
    return serialize(StreamingAttention(window, num_sinks, **options))
