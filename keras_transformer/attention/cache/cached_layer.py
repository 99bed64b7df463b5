"""What layers with a cache share: it goes through a call in the dtypes that it has."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_transformer.attention.cache.dense import cache_spec
from keras_transformer.backend import keras_private

# Those that `init_cache` makes; others, as float64 from numpy, Keras casts as it does elsewhere.
_KEPT = ("float32", "float16", "bfloat16")


class CachedLayer(keras_private.InputConversion, keras.layers.Layer):
    """Base of layers that are called with `cache=`, a dict of tensors, whose dtypes stay those of `init_cache`.

    Keras casts every float argument of a layer to its compute dtype. A state that sums over all tokens would so be rounded
    at each of them under mixed precision, and a cache that is narrower than the layer would grow. Here a cache is left out
    of it: a layer casts what it reads where it uses it.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        cache = kwargs.get("cache")
        if cache is None or not keras_private.converts_inputs(self) or not _differs(cache, self.input_dtype):
            return super().__call__(*args, **kwargs)
        args, others = keras.tree.map_structure(self._as_input, (args, {**kwargs, "cache": None}))
        cache = keras.tree.map_structure(self._as_kept, cache)
        # Keras asks this for all arguments or for none, and has them as they are here for none.
        with keras_private.unconverted_inputs(self):
            return super().__call__(*args, **{**others, "cache": cache})

    def _output_spec(self, shape, cache=None):
        """What a symbolic call gives: an output of this shape; with a cache, the next one beside it."""
        output = keras.KerasTensor(shape, dtype=self.compute_dtype)
        return output if cache is None else (output, cache_spec(cache))

    def _as_input(self, x):
        """An argument as Keras casts it; symbolic ones are cast when they have values."""
        if isinstance(x, keras.KerasTensor):
            return x
        converted = self.dtype_policy.convert_input(x, self.autocast, self.input_dtype)
        keras_private.set_mask(converted, keras_private.get_mask(x))
        return converted

    def _as_kept(self, x):
        if isinstance(x, keras.KerasTensor):
            return x
        return ops.convert_to_tensor(x) if _dtype(x) in _KEPT else self._as_input(x)


def _differs(cache, dtype):
    """Whether a tensor of the cache is of another kept dtype than this one."""
    return any(_dtype(x) in _KEPT and _dtype(x) != dtype for x in keras.tree.flatten(cache))


def _dtype(x):
    return keras.backend.standardize_dtype(x.dtype) if hasattr(x, "dtype") else None
