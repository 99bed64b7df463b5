"""Tokenizers in `tf.data`. Imported by `Tokenizer.map_dataset` alone: it needs TensorFlow."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformer.text.errors import GraphError, TextError


def map_dataset(tokenizer: Any, dataset: Any, fields: Any = None, **options: Any) -> Any:
    """Turns the strings of a data set into ids; see `Tokenizer.map_dataset`."""
    paths = _string_paths(dataset.element_spec, fields)
    to_ids = _ids_function(tokenizer, options)

    def transform(*element: Any):
        element = element[0] if len(element) == 1 and not isinstance(dataset.element_spec, tuple) else element
        if paths == [None]:
            return to_ids(element)
        if isinstance(element, dict):
            return {key: to_ids(value) if key in paths else value for key, value in element.items()}
        return tuple(to_ids(value) if place in paths else value for place, value in enumerate(element))

    return dataset.map(transform, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)


def _string_paths(spec: Any, fields: Any):
    """Keys or places of the scalar strings to turn into ids; `[None]` when the element itself is one."""
    if isinstance(spec, tf.TensorSpec):
        if fields is not None:
            raise TextError("fields is for data sets of dicts or tuples; this one holds single tensors.")
        items: dict[Any, Any] = {None: spec}
    else:
        items = dict(spec) if isinstance(spec, dict) else dict(enumerate(spec))
    strings = [key for key, each in items.items() if isinstance(each, tf.TensorSpec) and each.dtype == tf.string]
    chosen = strings if fields is None else list(fields)
    if not chosen:
        raise TextError(f"The data set holds no string. Its elements: {spec}")
    for key in chosen:
        if key not in strings or items[key].shape.rank != 0:
            raise TextError(f"Field {key!r} is no scalar string. The elements of the data set: {spec}")
    return chosen


def _ids_function(tokenizer: Any, options: dict[str, Any]):
    """A function of a scalar string tensor that gives int32 `(T,)`: in the graph, or outside for a kind that cannot."""
    # Wrong arguments show here rather than inside the pipeline.
    tokenizer.encode("", **options)
    try:
        graph = tokenizer.graph()
    except GraphError:

        def encode(text: Any) -> Any:
            return np.array(tokenizer.encode(text.decode("utf-8"), **options), "int32")

        def outside(text: Any):
            ids = tf.numpy_function(encode, [text], tf.int32, stateful=False)
            return tf.ensure_shape(ids, [None])

        return outside
    return lambda text: graph(tf.expand_dims(text, 0), **options)[0]
