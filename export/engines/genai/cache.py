"""The key/value cache that external engines support: keys and values of the same shape in all layers."""

import dataclasses
from typing import Any

import keras
import tensorflow as tf

from keras_transformer.export.errors import InvalidModelError
from keras_transformer.export.spec.float32 import float32_twin
from keras_transformer.layers.ternary import frozen_twin

# Longer than any window, so that bounded caches are detected.
_LONG = 1 << 20


@dataclasses.dataclass(frozen=True)
class KeyValueCache:
    """The cache of a decoder for external engines.

    Args:
        paths: tuple of str: the paths of the layers with a cache, in order; see `models.Stepwise`.
        num_heads: int. Key/value heads K of each layer.
        head_dim: int. Width H of a head.
    """

    paths: tuple[str, ...]
    num_heads: int
    head_dim: int

    def names(self) -> list[tuple[str, str]]:
        """Returns the names of the keys and the values of each layer in the cache of `Stepwise`."""
        return [(f"{path}_key", f"{path}_value") for path in self.paths]


def key_value_cache(model: Any, engine: str) -> KeyValueCache:
    """Returns the cache of a language model.

    Args:
        model: `LanguageModel`.
        engine: name of the engine, for error messages.

    Returns:
        A `KeyValueCache`.

    Raises:
        InvalidModelError: the model is an encoder-decoder, or its cache is not keys and values `(B, K, L, H)` with the
            same K and H in all layers.
    """
    from keras_transformer.tasks import LanguageModel

    if keras.backend.backend() != "tensorflow":
        raise InvalidModelError(f"{engine}: needs the TensorFlow backend of Keras; save the model and load it there")
    if not isinstance(model, LanguageModel):
        raise InvalidModelError(f"{engine} runs language models; not {type(model).__name__}")
    if model.is_encoder_decoder:
        raise InvalidModelError(f"{engine}: '{model.name}' is an encoder-decoder; only decoders are written for it")
    with tf.Graph().as_default():
        shapes = {name: tuple(tensor.shape) for name, tensor in model.init_cache(1, _LONG).items()}
    paths = tuple(dict.fromkeys(name.rpartition("_")[0] for name in shapes))
    wanted = next(iter(shapes.values()))
    for name, shape in shapes.items():
        is_key_or_value = name.endswith(("_key", "_value"))
        if not is_key_or_value or len(shape) != 4 or shape[2] != _LONG or shape != wanted:
            raise InvalidModelError(
                f"{engine}: the cache of '{model.name}' has '{name}' {shape}; expected keys and"
                f" values (1, K, {_LONG}, H) with the same K and H"
            )
    return KeyValueCache(paths, wanted[1], wanted[3])


def float32_decoder(model: Any) -> Any:
    """Returns the model in float32 with rounded ternary weights and the same tokenizer."""
    twin = frozen_twin(float32_twin(model))
    if twin is not model:
        twin.tokenizer = model.tokenizer
    return twin
