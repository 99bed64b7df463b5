"""Token classification."""

from __future__ import annotations

import keras

from keras_transformer.layers.dropout import Dropout
from keras_transformer.tasks.heads import check_count, check_tokens, output_layer
from keras_transformer.tasks.task_model import TaskModel
from keras_transformer.utils.types import Activation


def Tagger(
    backbone: keras.Model, num_tags: int, *, dropout: float = 0.0, activation: Activation = None, name: str = "tagger"
) -> keras.Model:
    """Token classifier: a linear head over each token, such as for parts of speech or entities.

    The first token of a word has its tag; other tokens and padding have the label -100, which
    `training.MaskedCrossentropy` and `training.MaskedAccuracy` ignore. `text.Tokenizer.encode_words` returns the word of
    each token.

    Args:
        backbone: `keras.Model` to tokens `(B, T, D)`, such as `models.Encoder`.
        num_tags: int >= 1.
        dropout: float in [0, 1). Of the tokens before the head.
        activation: None for logits, "softmax" for probabilities.
        name: str.

    Returns:
        `keras.Model`: the backbone's inputs to "logits" or "probabilities", float32 `(B, T, num_tags)`, under every dtype
        policy.

    Raises:
        ValueError: `num_tags` below 1, or a backbone whose output is not `(B, T, D)`.

    Example:

    >>> from keras_transformer import models
    >>> backbone = models.Encoder(models.Size(1, 8, 2, 16), vocabulary_size=50)
    >>> Tagger(backbone, num_tags=17).output_shape
    (None, None, 17)

    Reference: Devlin et al., BERT, arXiv 1810.04805, section 5.3 (the first sub-token of a word) and figure 4d.
    """
    check_tokens(backbone)
    check_count("num_tags", num_tags)
    x = Dropout(dropout, name="head_dropout")(backbone.output)
    return TaskModel(backbone.input, output_layer(num_tags, activation)(x), name=name)
