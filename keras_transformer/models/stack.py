"""What the architectures share: embeddings, blocks from templates, the norm at the end."""

import keras

from keras_transformer.attention import MECHANISMS, MultiHeadAttention, segment_mask
from keras_transformer.blocks import NORMS, RESIDUALS, Residual
from keras_transformer.feedforward import FEEDFORWARDS
from keras_transformer.positions import ATTENTION_POSITIONS, EMBEDDING_POSITIONS, AttentionPosition, Learned
from keras_transformer.saving import choice, clone, resolve


def token_input(name="token_ids"):
    """A symbolic input of token ids, int32 `(B, T)`."""
    return keras.Input((None,), dtype="int32", name=name)


def padding_input(name="padding_mask"):
    """A symbolic padding mask, boolean `(B, T)`, True = a real token."""
    return keras.Input((None,), dtype="bool", name=name)


def split_position(position, max_sequence_length):
    """Sorts a position into those added to the embedding and those inside attention.

    Args:
        position: a name in either dict of `positions`, an instance of either kind, or None.
        max_sequence_length: int: the table of "learned".

    Returns:
        `(embedding_position, attention_position)`, one of them None.
    """
    if position == "learned":
        return Learned(max_sequence_length, name="position_embedding"), None
    position = resolve(position, {**EMBEDDING_POSITIONS, **ATTENTION_POSITIONS}, keras.layers.Layer)
    # A copy: models that are given one instance do not share its weights; blocks of a model may.
    return (None, clone(position)) if isinstance(position, AttentionPosition) else (position, None)


def make_attention(size, template=None, position=None, dropout=0.0, name="self_attention"):
    """Attention for one block: a copy of the template, or as wide as the tokens, around the mechanism that it names."""
    if not (template is None or isinstance(template, str)):
        return clone(template, name=name)
    return MultiHeadAttention(
        size.num_heads,
        size.hidden_dim // size.num_heads,
        dropout=dropout,
        position=position if getattr(position, "is_shared", False) else clone(position),
        mechanism=template or "softmax",
        name=name,
    )


def make_cross_attention(size, template=None, dropout=0.0):
    """Attention to other tokens: as `make_attention`, but softmax where the mechanism is for self-attention alone."""
    if isinstance(template, str):
        template = template if "cross" in choice(template, MECHANISMS).honours else None
    elif "cross" not in getattr(template, "honours", {"cross"}):
        template = clone(template, mechanism="softmax") if isinstance(template, MultiHeadAttention) else None
    return make_attention(size, template, dropout=dropout, name="cross_attention")


def make_feed_forward(size, feedforward, activation):
    """Feed-forward for one block: by name with an activation, or a copy of an instance."""
    options = {"intermediate_dim": size.intermediate_dim, "activation": activation}
    return clone(resolve(feedforward, FEEDFORWARDS, **options), name="feedforward")


def make_norm(norm, name):
    """A norm of its own, by name or as a copy of an instance."""
    return clone(resolve(norm, NORMS, keras.layers.Layer), name=name)


def final_norm(residual, norm, name="final_norm"):
    """The norm at the end of a stack, or None where the residual scheme has normalised already."""
    if not resolve(residual, RESIDUALS, Residual).needs_final_norm:
        return None
    return make_norm(norm, name)


def token_model(embedding, position, blocks, last_norm, *, dropout, packed, name):
    """A decoder's graph: ids, embedding, position, blocks, last norm.

    Args:
        embedding: layer from token ids to vectors.
        position: layer that adds positions to them, or None.
        blocks: list of blocks, called with a padding mask.
        last_norm: layer at the end, or None.
        dropout: float. Of the embedding.
        packed: bool. Whether a row holds several documents, none of which sees another.
        name: str.

    Returns:
        `keras.Model`: {"token_ids": int32 `(B, T)`, "padding_mask": bool `(B, T)`} to `(B, T, D)`; packed, the inputs
        "segment_ids" and "positions", int32 `(B, T)`, too.
    """
    inputs = {"token_ids": token_input(), "padding_mask": padding_input()}
    places, masks = {}, {"padding_mask": inputs["padding_mask"]}
    if packed:
        inputs |= {"segment_ids": token_input("segment_ids"), "positions": token_input("positions")}
        places = {"positions": inputs["positions"]}
        masks |= {"attention_mask": segment_mask(inputs["segment_ids"])}
    x = embedding(inputs["token_ids"])
    x = x if position is None else position(x, **places)
    x = keras.layers.Dropout(dropout, name="embedding_dropout")(x)
    for block in blocks:
        x = block(x, **masks, **places)
    x = x if last_norm is None else last_norm(x)
    return keras.Model(inputs, x, name=name)
