"""A decoder of state spaces."""

from keras_transformer.models.decoder import Decoder
from keras_transformer.models.size import Size, get_size
from keras_transformer.recurrence import RECURRENCES
from keras_transformer.recurrence.s4_layer import S4Layer
from keras_transformer.saving import resolve

# Gu et al., section 4.3: the language model of WikiText-103.
SIZES = {
    "wikitext": Size(16, 1024, 1, 4096),
}


def S4Model(
    size,
    vocabulary_size,
    *,
    state_space="s4",
    residual="pre",
    norm="layer_norm",
    feedforward="dense",
    activation="gelu",
    dropout=0.0,
    name="s4",
):
    """A decoder whose blocks mix by state spaces: it trains in parallel, and generates from a state of fixed size.

    Args:
        size: "wikitext", or a `Size`, whose `num_heads` is not read.
        vocabulary_size: int. V.
        state_space: "s4", "s4d", or an instance to copy.
        residual: "pre", "post", "sandwich", "sublayer", or an instance to copy.
        norm: "layer_norm", "rms_norm", "batch_norm", or a layer to copy.
        feedforward: "dense", "gated", or an instance to copy.
        activation: of a feed-forward given by name.
        dropout: float in [0, 1). Of the embedding, and of what mixer and feed-forward give.
        name: str.

    Returns:
        `keras.Model`: {"token_ids": int32 `(B, T)`, "padding_mask": bool `(B, T)`} to `(B, T, D)`.

    Raises:
        ValueError: unknown name of a size or a part.

    Example:

    >>> from keras_transformer.models import Size
    >>> S4Model(Size(2, 16, 1, 32), vocabulary_size=100).output_shape
    (None, None, 16)

    Reference: Gu et al., arXiv 2111.00396, section 4.3: the Transformer with S4 in place of attention.
    """
    choices = {name: cls for name, cls in RECURRENCES.items() if issubclass(cls, S4Layer)}
    return Decoder(
        get_size(size, SIZES),
        vocabulary_size,
        position=None,
        residual=residual,
        norm=norm,
        attention=resolve(state_space, choices, S4Layer),
        feedforward=feedforward,
        activation=activation,
        dropout=dropout,
        name=name,
    )
