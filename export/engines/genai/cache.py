"""What engines of others ask of a decoder's cache: keys and values for each layer, all of one shape."""

import dataclasses

import keras
import tensorflow as tf

from keras_transformer.export.errors import InvalidModelError
from keras_transformer.export.spec.float32 import float32_twin
from keras_transformer.layers.ternary import frozen_twin

# Longer than any window: a cache that is bounded shows it.
_LONG = 1 << 20


@dataclasses.dataclass(frozen=True)
class KeyValueCache:
    """The cache of a decoder as engines of others know it.

    Args:
        places: tuple of str: the places of the layers with a cache, in order; see `models.Stepwise`.
        num_heads: int. Key/value heads K of each layer.
        head_dim: int. Width H of a head.
    """

    places: tuple
    num_heads: int
    head_dim: int

    def names(self):
        """For each layer the names of its keys and of its values in `Stepwise`'s cache."""
        return [(f"{place}_key", f"{place}_value") for place in self.places]


def key_value_cache(model, engine):
    """The cache of a language model.

    Args:
        model: `LanguageModel`.
        engine: name of the engine that asks, for the error.

    Returns:
        A `KeyValueCache`.

    Raises:
        InvalidModelError: the model is an encoder-decoder, or carries something else than keys and values `(B, K, L, H)`
            of one K and H in all layers.
    """
    from keras_transformer.tasks import LanguageModel

    if keras.backend.backend() != "tensorflow":
        raise InvalidModelError(f"{engine}: written with Keras on TensorFlow alone; save the model and load it there")
    if not isinstance(model, LanguageModel):
        raise InvalidModelError(f"{engine} runs language models; not {type(model).__name__}")
    if model.is_encoder_decoder:
        raise InvalidModelError(f"{engine}: '{model.name}' is an encoder-decoder; only decoders are written for it")
    with tf.Graph().as_default():
        shapes = {name: tuple(tensor.shape) for name, tensor in model.init_cache(1, _LONG).items()}
    places = tuple(dict.fromkeys(name.rpartition("_")[0] for name in shapes))
    wanted = next(iter(shapes.values()))
    for name, shape in shapes.items():
        is_key_or_value = name.endswith(("_key", "_value"))
        if not is_key_or_value or len(shape) != 4 or shape[2] != _LONG or shape != wanted:
            raise InvalidModelError(
                f"{engine}: the cache of '{model.name}' holds '{name}' {shape}; keys and values"
                f" (1, K, {_LONG}, H) of one K and one H are wanted"
            )
    return KeyValueCache(places, wanted[1], wanted[3])


def float32_decoder(model):
    """The model, or its twin in float32, with ternary weights rounded, and the same tokenizer."""
    twin = frozen_twin(float32_twin(model))
    if twin is not model:
        twin.tokenizer = model.tokenizer
    return twin
