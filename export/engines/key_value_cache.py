"""The key/value cache that external engines support: keys and values of the same shape in all layers."""

import dataclasses
from collections.abc import Mapping

import keras
import tensorflow as tf

from keras_transformer.export.errors import InvalidModelError
from keras_transformer.export.spec.float32 import float32_twin
from keras_transformer.layers.ternary import frozen_twin

# Longer than any window, so that bounded caches are detected.
_LONG = 1 << 20
_SOURCE = 7


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


def key_value_cache(model: keras.Model, engine: str, *, is_encoder_decoder: bool = False) -> KeyValueCache:
    """Returns the cache of the tokens that the decoder of a language model has read.

    Args:
        model: `LanguageModel`.
        engine: name of the engine, for error messages.
        is_encoder_decoder: bool. Whether the engine needs an encoder-decoder, or a decoder alone.

    Returns:
        A `KeyValueCache`.

    Raises:
        InvalidModelError: the model is not of this kind, or its cache is not keys and values `(B, K, L, H)` with the same K
            and H in all layers.
    """
    from keras_transformer.tasks import LanguageModel

    if keras.backend.backend() != "tensorflow":
        raise InvalidModelError(f"{engine}: needs the TensorFlow backend of Keras; save the model and load it there")
    if not isinstance(model, LanguageModel):
        raise InvalidModelError(f"{engine} runs language models; not {type(model).__name__}")
    if model.is_encoder_decoder and not is_encoder_decoder:
        raise InvalidModelError(f"{engine}: '{model.name}' is an encoder-decoder; only decoders are written for it")
    if is_encoder_decoder and (not model.is_encoder_decoder or model.takes_prompts):
        raise InvalidModelError(f"{engine}: '{model.name}' is not an encoder-decoder of a text or of features")
    with tf.Graph().as_default():
        shapes = {name: tuple(tensor.shape) for name, tensor in model.init_cache(1, _LONG).items()}
    return _of_shapes(model, shapes, _LONG, engine)


def cross_cache(model: keras.Model, cache: KeyValueCache, engine: str) -> KeyValueCache:
    """Returns the keys and values of the source, which the cross-attention of an encoder-decoder reads.

    Args:
        model: `LanguageModel`.
        cache: its `key_value_cache`.
        engine: name of the engine, for error messages.

    Raises:
        InvalidModelError: they are not one key and one value `(B, K, S, H)`, of the same K and H, for each layer.
    """
    try:
        width = model.stepwise.encoder_shape[-1]
    except ValueError as error:
        raise InvalidModelError(f"{engine}: {error}") from error
    memory = model.stepwise.memory(tf.zeros((1, _SOURCE, width)))
    shapes = {name: tuple(tensor.shape) for name, tensor in memory.items()}
    found = _of_shapes(model, shapes, _SOURCE, engine)
    if found.paths != tuple(f"{path}_cross" for path in cache.paths):
        raise InvalidModelError(f"{engine}: not every layer of '{model.name}' with a cache attends to the source")
    return found


def float32_decoder(model: keras.Model) -> keras.Model:
    """Returns the model in float32 with rounded ternary weights and the same tokenizer."""
    twin = frozen_twin(float32_twin(model))
    if twin is not model:
        twin.tokenizer = model.tokenizer
    return twin


def _of_shapes(model: keras.Model, shapes: Mapping[str, tuple[int, ...]], length: int, engine: str) -> KeyValueCache:
    paths = tuple(dict.fromkeys(_path(name) for name in shapes))
    wanted = next(iter(shapes.values()))
    for name, shape in shapes.items():
        is_key_or_value = name.endswith(("_key", "_value"))
        if not is_key_or_value or len(shape) != 4 or shape[2] != length or shape != wanted:
            raise InvalidModelError(
                f"{engine}: the cache of '{model.name}' has '{name}' {shape}; expected keys and"
                f" values (1, K, {length}, H) with the same K and H"
            )
    return KeyValueCache(paths, wanted[1], wanted[3])


def _path(name: str) -> str:
    return name.rpartition("_")[0]
