"""The part of a speaker in the layers of speech synthesis."""

from __future__ import annotations

import keras
from keras import ops

from keras_transformer.utils.types import Shape, Tensor


def speaker_projection(width: int, speaker_shape: Shape | None, policy: keras.DTypePolicy) -> keras.layers.Layer:
    """Returns the built `keras.layers.Dense` of the vector of a speaker, named "speaker"; None without one."""
    if speaker_shape is None:
        return None
    layer = keras.layers.Dense(width, dtype=policy, name="speaker")
    layer.build(tuple(speaker_shape))
    return layer


def add_speaker(inputs: Tensor, projection: keras.layers.Layer, speaker: Tensor | None) -> Tensor:
    """Returns inputs `(B, T, D)` plus the projection of the vectors of speakers `(B, S)`; the inputs without speakers."""
    return inputs if speaker is None else inputs + ops.expand_dims(projection(speaker), 1)
