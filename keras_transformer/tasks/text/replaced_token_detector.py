"""Replaced token detection, the pretraining task of ELECTRA."""

from __future__ import annotations

import keras

from keras_transformer.feedforward.activations import get_activation
from keras_transformer.tasks.heads import check_tokens, input_named
from keras_transformer.tasks.task_model import TaskModel
from keras_transformer.tasks.text.span_answerer import TokenLogits
from keras_transformer.utils.types import Activation


def ReplacedTokenDetector(
    backbone: keras.Model, *, activation: Activation = "gelu", name: str = "replaced_token_detector"
) -> keras.Model:
    """ELECTRA discriminator, a head over each token: `w . gelu(W h + c) + b`, the logit of "this token was replaced".

    Train it with a binary cross-entropy from logits: label 1 for tokens that the generator, a `MaskedLanguageModel`, has
    replaced, 0 for others. The logit of padding is -1e9, with zero loss for label 0.

    Args:
        backbone: `keras.Model` to tokens `(B, T, D)`, such as `models.ELECTRA`.
        activation: activation of the transform.
        name: str.

    Returns:
        `keras.Model`: the backbone's inputs to "logits", float32 `(B, T)`, under every dtype policy; -1e9 at padding.

    Raises:
        ValueError: a backbone whose output is not `(B, T, D)`.

    Example:

    >>> from keras_transformer import models
    >>> backbone = models.Encoder(models.Size(1, 8, 2, 16), vocabulary_size=50)
    >>> ReplacedTokenDetector(backbone).output_shape
    (None, None)

    Reference: Clark et al., ELECTRA, arXiv 2003.10555, section 2; the transform as in its published code.
    """
    check_tokens(backbone)
    x = backbone.output
    x = keras.layers.Dense(x.shape[-1], activation=get_activation(activation), name="transform")(x)
    x = keras.layers.Dense(1, dtype="float32", name="prediction")(x)
    x = TokenLogits(0, dtype="float32", name="logits")(x, padding_mask=input_named(backbone, "padding_mask"))
    return TaskModel(backbone.input, x, name=name)
