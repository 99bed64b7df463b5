"""A language model with a head of its own."""

from __future__ import annotations

import keras

from keras_transformer.tasks.text.language_model import LanguageModel


def untie_embeddings(model: LanguageModel) -> LanguageModel:
    """Returns a copy of a language model whose head has its own weights, which begin as the transposed token embedding.

    Its outputs are those of the model. It is what `quantization.rotate` needs, and a head that is quantized apart from the
    table; it has V x D more weights.

    Args:
        model: `LanguageModel`, with tied embeddings; another one is returned as it is.

    Example:

    >>> from keras_transformer import models
    >>> model = LanguageModel(models.Llama(models.Size(1, 8, 2, 16), vocabulary_size=50))
    >>> untie_embeddings(model).count_params() - model.count_params()
    400
    """
    if not model.tie_embeddings:
        return model
    untied = LanguageModel.from_config({**model.get_config(), "tie_embeddings": False})
    for ours, theirs in zip(untied.backbone.variables, model.backbone.variables, strict=True):
        ours.assign(keras.ops.copy(theirs))  # JAX gives the arrays of variables away when it predicts.
    table = next(layer for layer in model.layers if isinstance(layer, keras.layers.ReversibleEmbedding))
    untied.get_layer("head").kernel.assign(keras.ops.transpose(table.embeddings))
    if model.head_bias:
        untied.get_layer("logits").bias.assign(keras.ops.copy(model.get_layer("logits").bias))
    untied.tokenizer = model.tokenizer
    return untied
