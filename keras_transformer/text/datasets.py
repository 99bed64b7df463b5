"""Tokenization in `tf.data`. Imported by `Tokenizer.map_dataset` only, because it needs TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from keras_transformer.text.errors import GraphError, TextError
from keras_transformer.utils.types import Tensor, Tensors

if TYPE_CHECKING:
    from keras_transformer.text.tokenizers.tokenizer import Tokenizer


def map_dataset(
    tokenizer: Tokenizer, dataset: tf.data.Dataset, fields: Iterable[str | int] | None = None, **options: object
) -> tf.data.Dataset:
    """Tokenizes the strings of a dataset; see `Tokenizer.map_dataset`."""
    keys = _string_keys(dataset.element_spec, fields)
    tokenize = _tokenize_function(tokenizer, options)

    def transform(*element: Any) -> Tensors:
        given = element[0] if len(element) == 1 and not isinstance(dataset.element_spec, tuple) else element
        if keys == [None]:
            return tokenize(given)
        if isinstance(given, dict):
            return {key: tokenize(value) if key in keys else value for key, value in given.items()}
        return tuple(tokenize(value) if index in keys else value for index, value in enumerate(given))

    return dataset.map(transform, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)


def _string_keys(spec: Any, fields: Iterable[str | int] | None) -> list[Any]:
    """Keys or indices of the scalar strings to tokenize; `[None]` if the element itself is a string."""
    items: dict[Any, Any]
    if isinstance(spec, tf.TensorSpec):
        if fields is not None:
            raise TextError("fields is for datasets of dicts or tuples; this dataset has single tensors.")
        items = {None: spec}
    else:
        items = dict(spec) if isinstance(spec, dict) else dict(enumerate(spec))
    strings = [key for key, each in items.items() if isinstance(each, tf.TensorSpec) and each.dtype == tf.string]
    chosen = strings if fields is None else list(fields)
    if not chosen:
        raise TextError(f"The dataset contains no string. Element spec: {spec}")
    for key in chosen:
        if key not in strings or items[key].shape.rank != 0:
            raise TextError(f"Field {key!r} is not a scalar string. Element spec: {spec}")
    return chosen


def _tokenize_function(tokenizer: Tokenizer, options: dict[str, Any]) -> Callable[..., Tensor]:
    """Returns a function from a scalar string tensor to int32 `(T,)`. It uses `numpy_function` without a graph."""
    # Invalid arguments raise here rather than inside the pipeline.
    tokenizer.encode("", **options)
    try:
        graph = tokenizer.graph()
    except GraphError:

        def encode(text: bytes) -> np.ndarray:
            return np.array(tokenizer.encode(text.decode("utf-8"), **options), "int32")

        def call_python(text: Tensor) -> Tensor:
            ids = tf.numpy_function(encode, [text], tf.int32, stateful=False)
            return tf.ensure_shape(ids, [None])

        return call_python
    return lambda text: graph(tf.expand_dims(text, 0), **options)[0]
