"""The recurrent encoder-decoder of Bahdanau, Cho and Bengio, the first with attention."""

from __future__ import annotations

from typing import NamedTuple

import keras

from keras_transformer.layers.dropout import Dropout
from keras_transformer.models.building.encoder_decoder import token_tables
from keras_transformer.models.building.stack import padding_input, token_input
from keras_transformer.models.recurrent.attentional_gru import AttentionalGRU
from keras_transformer.models.recurrent.bidirectional_gru import BidirectionalGRU
from keras_transformer.utils.serialization import choice
from keras_transformer.utils.types import Initializer


class BahdanauSize(NamedTuple):
    """Size of a recurrent encoder-decoder.

    Attributes:
        embedding_dim: width of the token vectors m.
        hidden_dim: width of each state n; an annotation of the source is 2n wide.
        alignment_dim: width of the hidden layer of the attention scores.
        readout_dim: width of the input of the head l, after maxout.

    Example:

    >>> BahdanauSize(embedding_dim=8, hidden_dim=16, alignment_dim=16, readout_dim=8).hidden_dim
    16
    """

    embedding_dim: int
    hidden_dim: int
    alignment_dim: int
    readout_dim: int


# Bahdanau et al., appendix A.2.3.
SIZES = {"base": BahdanauSize(embedding_dim=620, hidden_dim=1000, alignment_dim=1000, readout_dim=500)}


def Bahdanau(
    size: str | BahdanauSize = "base",
    vocabulary_size: int = 30000,
    *,
    target_vocabulary_size: int | None = None,
    tie_embeddings: bool = False,
    dropout: float = 0.0,
    kernel_initializer: Initializer = "glorot_uniform",
    recurrent_initializer: Initializer = "orthogonal",
    name: str = "bahdanau",
) -> keras.Model:
    """The recurrent encoder-decoder with additive attention (RNNsearch) up to its head.

    `tasks.LanguageModel(Bahdanau(...), tie_embeddings=False)` adds the paper's head. For a head that is tied to the
    target embedding, `readout_dim` must equal `embedding_dim`.

    Args:
        size: "base", or a `BahdanauSize`.
        vocabulary_size: int. Vocabulary size of the source; the default is that of the paper for English-French.
        target_vocabulary_size: int, or None for `vocabulary_size`.
        tie_embeddings: bool. Whether source and target share one embedding. Both need one vocabulary.
        dropout: float in [0, 1). Of the embeddings, the annotations of the source and the readout; the paper has none.
        kernel_initializer: initializer of all kernels except the recurrent ones.
        recurrent_initializer: initializer of the recurrent kernels.
        name: str.

    Returns:
        `keras.Model`: {"source_token_ids", "target_token_ids": int32 `(B, S)`, `(B, T)`; "source_padding_mask",
        "target_padding_mask": bool} to the readout `(B, T, l)`.

    Raises:
        ValueError: unknown size name; a shared embedding for different vocabularies.

    Example:

    >>> Bahdanau(BahdanauSize(8, 16, 16, 8), vocabulary_size=100).output_shape
    (None, None, 8)

    Reference: Bahdanau et al., arXiv 1409.0473, section 3 and appendix A. The paper draws kernels from a normal
    distribution of deviation 0.01, and 0.001 or zeros in attention, which is too small for small models and Adam; here
    `kernel_initializer` is used. The target begins with a start token; in the paper, with a vector of zeros.
    """
    size = choice(size, SIZES, argument="size") if isinstance(size, str) else BahdanauSize(*size)
    initializers = {"kernel_initializer": kernel_initializer, "recurrent_initializer": recurrent_initializer}

    def drop(x, name):
        return Dropout(dropout, name=f"{name}_dropout")(x)

    # Layers
    source_table, target_table = token_tables(
        size.embedding_dim, vocabulary_size, target_vocabulary_size, tie_embeddings
    )
    encoder = BidirectionalGRU(size.hidden_dim, name="encoder", **initializers)
    decoder = AttentionalGRU(size.hidden_dim, size.alignment_dim, size.readout_dim, name="decoder", **initializers)
    # Graph
    inputs = {}
    for side in ("source", "target"):
        inputs[f"{side}_token_ids"] = token_input(f"{side}_token_ids")
        inputs[f"{side}_padding_mask"] = padding_input(f"{side}_padding_mask")
    source = drop(source_table(inputs["source_token_ids"]), "source")
    source = drop(encoder(source, padding_mask=inputs["source_padding_mask"]), "annotation")
    x = decoder(
        drop(target_table(inputs["target_token_ids"]), "target"),
        source,
        padding_mask=inputs["target_padding_mask"],
        encoder_padding_mask=inputs["source_padding_mask"],
    )
    return keras.Model(inputs, drop(x, "readout"), name=name)
