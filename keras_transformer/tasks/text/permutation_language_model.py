"""Permutation language modeling, for XLNet."""

from __future__ import annotations

import keras

from keras_transformer.models import with_query_stream
from keras_transformer.tasks.text.masked_language_model import MaskedLanguageModel


def PermutationLanguageModel(backbone: keras.Model, *, name: str = "permutation_language_model") -> keras.Model:
    """Permutation language model: a two-stream `XLNet` with a head, `logits = h E^T + b` for each target.

    A target is predicted from its position and the tokens before it in a random factorization order. `data.permute_tokens`
    prepares the batches, and `permutation_generator` generates texts. The layers of the backbone are used, not copied: after
    training, use the backbone in another task.

    Args:
        backbone: `models.XLNet`.
        name: str.

    Returns:
        `keras.Model`: the backbone's inputs, "permutation_mask", bool `(B, T, T)`, and "targets", bool `(B, P, T)`,
        to "logits", float32 `(B, P, V)`, under every dtype policy: see `models.with_query_stream`.

    Raises:
        ValueError: the backbone is not an `XLNet`.

    Example:

    >>> from keras_transformer import models
    >>> PermutationLanguageModel(models.XLNet(models.Size(1, 8, 2, 16), vocabulary_size=50)).output_shape
    (None, None, 50)

    Reference: Yang et al., XLNet, arXiv 1906.08237, section 2.2; E is the token embedding, as in its published code.
    """
    return MaskedLanguageModel(with_query_stream(backbone), transform=False, name=name)
