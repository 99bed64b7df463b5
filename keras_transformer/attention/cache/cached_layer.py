"""Base class of layers with a cache: a call keeps the dtypes of the cache."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_transformer.attention.cache.dense import cache_spec
from keras_transformer.backend import keras_private

# The dtypes that `init_cache` makes. Keras casts others, such as float64 from numpy, as usual.
_CACHE_DTYPES = ("float32", "float16", "bfloat16", "int8")


class CachedLayer(keras_private.InputConversion, keras.layers.Layer):
    """Base class of layers that are called with `cache`, a dict of tensors that keep the dtypes of `init_cache`.

    Keras casts every float argument of a layer to its compute dtype. With mixed precision that would round a state at each
    token, and widen a cache in half precision. This class exempts the cache: a layer casts what it reads from it.
    """

    def __call__(self, *args: object, **kwargs: object) -> Any:
        cache = kwargs.get("cache")
        if cache is None or not keras_private.converts_inputs(self) or not _differs(cache, self.input_dtype):
            return super().__call__(*args, **kwargs)
        args, others = keras.tree.map_structure(self._as_input, (args, {**kwargs, "cache": None}))
        cache = keras.tree.map_structure(self._as_cache_tensor, cache)
        # Keras casts all arguments or none. The other arguments are cast above.
        with keras_private.unconverted_inputs(self):
            return super().__call__(*args, **{**others, "cache": cache})

    def _output_spec(self, shape, cache=None):
        """Returns the spec of a symbolic call: an output of this shape; with a cache, also the next cache."""
        output = keras.KerasTensor(shape, dtype=self.compute_dtype)
        return output if cache is None else (output, cache_spec(cache))

    def _as_input(self, x):
        """Casts an argument as Keras does. Symbolic tensors are cast later, when they have values."""
        if isinstance(x, keras.KerasTensor):
            return x
        converted = self.dtype_policy.convert_input(x, self.autocast, self.input_dtype)
        keras_private.set_mask(converted, keras_private.get_mask(x))
        return converted

    def _as_cache_tensor(self, x):
        if isinstance(x, keras.KerasTensor):
            return x
        return ops.convert_to_tensor(x) if _dtype(x) in _CACHE_DTYPES else self._as_input(x)


def _differs(cache, dtype):
    """Returns whether a tensor of the cache has a cache dtype other than `dtype`."""
    return any(_dtype(x) in _CACHE_DTYPES and _dtype(x) != dtype for x in keras.tree.flatten(cache))


def _dtype(x):
    return keras.backend.standardize_dtype(x.dtype) if hasattr(x, "dtype") else None
