"""Extractive question answering."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.layers.dropout import Dropout
from keras_transformer.tasks.heads import check_tokens, input_named
from keras_transformer.tasks.task_model import TaskModel
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Tensor

# The logit of padding: finite, with zero probability after a softmax.
PADDING_LOGIT = -1e9


def SpanAnswerer(backbone: keras.Model, *, dropout: float = 0.0, name: str = "span_answerer") -> keras.Model:
    """Extractive question answering: two logits per token, for the start and the end of the answer.

    Question and context are one sequence, as from `text.Tokenizer.encode_pair`. Train each output with a sparse categorical
    cross-entropy from logits on the index of the token; `best_spans` decodes the answers.

    Args:
        backbone: `keras.Model` to tokens `(B, T, D)`, such as `models.Encoder(num_segments=2)`.
        dropout: float in [0, 1). Of the tokens before the head.
        name: str.

    Returns:
        `keras.Model`: the backbone's inputs to {"start_logits", "end_logits"}, each float32 `(B, T)`, under every dtype
        policy; -1e9 at padding.

    Raises:
        ValueError: a backbone whose output is not `(B, T, D)`.

    Example:

    >>> from keras_transformer import models
    >>> backbone = models.Encoder(models.Size(1, 8, 2, 16), vocabulary_size=50, num_segments=2)
    >>> {name: tensor.shape for name, tensor in SpanAnswerer(backbone).output.items()}
    {'start_logits': (None, None), 'end_logits': (None, None)}

    Reference: Devlin et al., BERT, arXiv 1810.04805, section 4.2.
    """
    check_tokens(backbone)
    x = Dropout(dropout, name="head_dropout")(backbone.output)
    x = keras.layers.Dense(2, dtype="float32", name="span")(x)
    padding_mask = input_named(backbone, "padding_mask")
    outputs = {
        f"{edge}_logits": TokenLogits(index, dtype="float32", name=f"{edge}_logits")(x, padding_mask=padding_mask)
        for index, edge in enumerate(("start", "end"))
    }
    return TaskModel(backbone.input, outputs, name=name)


@serializable
class TokenLogits(keras.layers.Layer):
    """Selects one of the logits of each token, and masks padding.

    Args:
        index: int. Index of the logit.

    Call arguments:
        inputs: float `(B, T, C)`.
        padding_mask: boolean `(B, T)`, True = a real token; None for all real.

    Returns:
        `(B, T)`; -1e9 at padding.
    """

    def __init__(self, index: int, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.index = index

    def call(self, inputs: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        logits = inputs[:, :, self.index]
        if padding_mask is None:
            return logits
        return ops.where(ops.cast(padding_mask, "bool"), logits, PADDING_LOGIT)

    def get_config(self) -> Config:
        return {**super().get_config(), "index": self.index}
