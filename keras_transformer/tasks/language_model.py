"""Next-token prediction, for decoder-only and encoder-decoder backbones."""

import keras

_EMBEDDING_NAMES = ("target_token_embedding", "token_embedding")


def LanguageModel(backbone, *, tie_embeddings=True, name="language_model"):
    """A backbone with a head over the vocabulary.

    Args:
        backbone: `keras.Model` to `(B, T, D)`, such as `models.Decoder` or `models.Transformer`.
        tie_embeddings: bool. True: the logits are products with the token embeddings; False: with a matrix of their own.
        name: str.

    Returns:
        `keras.Model`: the backbone's inputs to logits, float32 `(B, T, V)`.

    Raises:
        ValueError: the backbone has no token embedding.

    Example:

    >>> from keras_transformer import models
    >>> LanguageModel(models.Decoder(models.Size(1, 8, 2, 16), vocabulary_size=50)).output_shape
    (None, None, 50)

    Reference: Press and Wolf, Using the Output Embedding to Improve Language Models, arXiv 1608.05859.
    """
    embedding = _token_embedding(backbone)
    x = backbone.output
    if tie_embeddings:
        logits = embedding(x, reverse=True)
    else:
        logits = keras.layers.Dense(embedding.input_dim, use_bias=False, name="head")(x)
    logits = keras.layers.Activation("linear", dtype="float32", name="logits")(logits)
    return keras.Model(backbone.input, logits, name=name)


def _token_embedding(backbone):
    layers = {layer.name: layer for layer in backbone.layers}
    for name in _EMBEDDING_NAMES:
        if name in layers:
            return layers[name]
    raise ValueError(f"Backbone {backbone.name!r} has no token embedding ({' or '.join(_EMBEDDING_NAMES)}).")
