"""Layers of Keras as steps of preprocessing: what a step computes, and what a layer makes of its result."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import keras
from keras import layers

from keras_transformer.backend import keras_private
from keras_transformer.export.data.preprocessing.layers import (
    SPLITS,
    STANDARDIZATIONS,
    Discretization,
    HashedCrossing,
    Hashing,
    Lookup,
    Operation,
    TextVectorization,
)
from keras_transformer.export.operations.lookups import HASHES, encoded_lookup, mask_index, tokens_of, unknown_index
from keras_transformer.utils.types import Shape, Tensor


def _mode(layer: keras.layers.Layer) -> str:
    return layer.get_config()["output_mode"]


def step_dtype(layer: keras.layers.Layer) -> str:
    """The dtype of the result of the step of a layer."""
    return layer.dtype if isinstance(layer, HASHES) and _mode(layer) == "int" else "int64"


def step_operation(
    layer: keras.layers.Layer, inputs: Sequence[keras.KerasTensor], add_vocabulary: Callable[[Sequence[str | int]], str]
) -> Operation | None:
    """The operation of a layer, or None where no step computes it.

    Args:
        layer: the layer.
        inputs: the symbolic tensors that it takes.
        add_vocabulary: takes the tokens of a lookup, and returns their path in the bundle.
    """
    if getattr(layer, "sparse", False):
        return None
    if isinstance(layer, (layers.StringLookup, layers.IntegerLookup)):
        return None if layer.invert else _lookup(layer, add_vocabulary)
    if isinstance(layer, layers.TextVectorization):
        return _text(layer, inputs[0], add_vocabulary)
    if isinstance(layer, layers.Hashing):
        return Hashing(layer.num_bins, layer.mask_value, _pair(layer.salt))
    if isinstance(layer, layers.HashedCrossing):
        return HashedCrossing(layer.num_bins)
    return Discretization(tuple(map(float, layer.bin_boundaries))) if _is_plain(layer) else None


def _is_plain(layer: keras.layers.Layer) -> bool:
    return isinstance(layer, layers.Discretization) and layer.output_mode == "int"


def _lookup(layer: keras.layers.Layer, add_vocabulary: Callable[[Sequence[str | int]], str]) -> Lookup:
    config, first = layer.get_config(), unknown_index(layer)
    return Lookup(
        add_vocabulary(tokens_of(layer)),
        first_index=first + layer.num_oov_indices,
        unknown_index=first,
        unknown_count=layer.num_oov_indices,
        hashes=isinstance(layer, layers.StringLookup) or config.get("oov_method") == "farmhash",
        salt=_pair(config.get("salt")),
        mask=layer.mask_token,
        mask_index=0 if layer.mask_token is None else mask_index(layer),
    )


def _text(
    layer: keras.layers.Layer, texts: keras.KerasTensor, add_vocabulary: Callable[[Sequence[str | int]], str]
) -> TextVectorization | None:
    config, lookup = layer.get_config(), _lookup_layer(layer)
    standardize, split = config["standardize"], config["split"]
    is_known = standardize in STANDARDIZATIONS and split in SPLITS
    if not is_known or config["ragged"] or config["sparse"] or (split is None and len(texts.shape) != 2):
        return None
    ngrams = config["ngrams"]
    return TextVectorization(
        _lookup(lookup, add_vocabulary),
        standardize,
        split,
        tuple(range(1, ngrams + 1)) if isinstance(ngrams, int) else ngrams and tuple(ngrams),
        config["output_sequence_length"],
        mask_index(lookup),
    )


def _lookup_layer(layer: keras.layers.Layer) -> keras.layers.Layer:
    """The lookup in `TextVectorization`."""
    return next(each for each in keras_private.direct_layers(layer) if isinstance(each, layers.StringLookup))


def _pair(salt: int | Sequence[int] | None) -> tuple[int, int] | None:
    if salt is None:
        return None
    return (salt, salt) if isinstance(salt, int) else (int(salt[0]), int(salt[1]))


def step_shape(operation: Operation, shape: Shape) -> tuple[int | None, ...]:
    """The shape of the result of a step.

    Args:
        operation: what it computes.
        shape: that of its first input.
    """
    if isinstance(operation, TextVectorization):
        own = shape[1] if operation.split is None and operation.ngrams is None else None
        return (shape[0], operation.length or own)
    return tuple(shape)


def encoded(layer: keras.layers.Layer, indices: Tensor) -> Tensor:
    """What a layer makes of the result of its step, by its output mode.

    Args:
        layer: the layer.
        indices: the result.
    """
    mode = _mode(layer)
    if mode == "int":
        return indices
    if isinstance(layer, HASHES):
        return layers.CategoryEncoding(layer.num_bins, output_mode=mode, dtype=layer.dtype)(indices)
    return encoded_lookup(_lookup_layer(layer) if isinstance(layer, layers.TextVectorization) else layer, indices)
