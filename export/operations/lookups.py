"""Lookups of integers and hashes, layers of Keras whose tables and strings TFLite and ONNX lack."""

from __future__ import annotations

from typing import Protocol

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from keras_transformer.utils.types import Tensor

# Layers whose results come from a hash of a text, which no operator of TFLite or ONNX computes.
HASHES = (keras.layers.Hashing, keras.layers.HashedCrossing)


class LookupLayer(Protocol):
    """What `keras.layers.StringLookup` and `IntegerLookup` have, for which Keras declares no types."""

    invert: bool
    sparse: bool
    output_mode: str
    num_oov_indices: int
    mask_token: str | int | None
    oov_token: str | int
    max_tokens: int
    pad_to_max_tokens: bool
    vocabulary_dtype: str
    idf_weights_const: Tensor

    def get_vocabulary(self, include_special_tokens: bool = True) -> list[str | int]: ...

    def vocabulary_size(self) -> int: ...


def hashes_texts(layer: keras.Operation) -> bool:
    """Whether a layer, also of numbers, computes the hash of a text."""
    if isinstance(layer, keras.layers.IntegerLookup):
        return layer.num_oov_indices > 1 and layer.get_config().get("oov_method") == "farmhash"
    return isinstance(layer, HASHES)


def looked_up(layer: LookupLayer, inputs: Tensor) -> Tensor:
    """A lookup without a table: of integers in a sorted vocabulary, or of tokens in a list."""
    return _gathered(layer, inputs) if layer.invert else _searched(layer, inputs)


def needs_no_table(layer: LookupLayer, inputs: Tensor) -> bool:
    """Whether `looked_up` computes what a lookup does: no string is read or hashed, and the result is dense."""
    return layer.invert or (
        isinstance(layer, keras.layers.IntegerLookup) and not hashes_texts(layer) and not layer.sparse
    )


def _searched(layer: LookupLayer, inputs: Tensor) -> Tensor:
    """The indices of integers by a search in the sorted vocabulary.

    Without an index for other integers the result for these is -1; Keras raises.
    """
    inputs = ops.cast(inputs, "int64")
    vocabulary = np.array(tokens_of(layer), "int64")
    order = np.argsort(vocabulary)
    first = unknown_index(layer)
    places = ops.minimum(ops.searchsorted(vocabulary[order], ops.reshape(inputs, (-1,))), len(vocabulary) - 1)
    places = ops.reshape(places, ops.shape(inputs))
    indices = ops.take((order + first + layer.num_oov_indices).astype("int64"), places)
    others = ops.full_like(inputs, first if layer.num_oov_indices else -1)
    if layer.num_oov_indices > 1:
        others = others + ops.mod(inputs, layer.num_oov_indices)
    indices = ops.where(ops.equal(ops.take(vocabulary[order], places), inputs), indices, others)
    if layer.mask_token is not None:
        masked = ops.full_like(inputs, mask_index(layer))
        indices = ops.where(ops.equal(inputs, layer.mask_token), masked, indices)
    return encoded_lookup(layer, indices)


def _gathered(layer: LookupLayer, inputs: Tensor) -> Tensor:
    """The tokens of indices from a list of the tokens."""
    with tf.init_scope():
        tokens = [*layer.get_vocabulary(), layer.oov_token]
    inputs = ops.cast(inputs, "int64")
    is_known = ops.logical_and(inputs >= 0, inputs < len(tokens) - 1)
    places = ops.where(is_known, inputs, ops.full_like(inputs, len(tokens) - 1))
    return tf.gather(tf.constant(tokens, layer.vocabulary_dtype), places)


def tokens_of(lookup: LookupLayer) -> list[str | int]:
    """The vocabulary of a lookup, without the tokens that stand for a mask or for others."""
    with tf.init_scope():  # Its table is read, also while a graph is traced.
        return lookup.get_vocabulary(include_special_tokens=False)


def unknown_index(lookup: LookupLayer) -> int:
    """The first index of tokens that the vocabulary lacks, before which is that of the mask, if any."""
    return int(lookup.mask_token is not None and lookup.output_mode == "int")


def mask_index(lookup: LookupLayer) -> int:
    """The index of the token that is a mask; in modes other than "int" it is the one that stands for no token."""
    return 0 if lookup.output_mode == "int" else number_of_classes(lookup)


def number_of_classes(lookup: LookupLayer) -> int:
    """The size of what a lookup returns for each token, in modes other than "int"."""
    with tf.init_scope():
        return lookup.max_tokens if lookup.pad_to_max_tokens else lookup.vocabulary_size()


def encoded_lookup(lookup: LookupLayer, indices: Tensor) -> Tensor:
    """What a lookup returns of indices, by its output mode.

    Args:
        lookup: `keras.layers.StringLookup` or `IntegerLookup`.
        indices: integers, in which the number of classes stands for what is no token.

    Returns:
        The indices, or their classes: int64, or float for "tf_idf".
    """
    mode, depth = lookup.output_mode, number_of_classes(lookup)
    if mode == "int":
        return indices
    # One more class for what is no token, which is taken off.
    counted = keras.layers.CategoryEncoding(depth + 1, output_mode="count" if mode == "tf_idf" else mode)(indices)
    classes = counted[..., :depth]
    if mode == "tf_idf":
        return classes * np.asarray(lookup.idf_weights_const)
    return ops.cast(classes, "int64")
