"""Feature extraction inside a model."""

from __future__ import annotations

import keras

from keras_transformer.backend import keras_private
from keras_transformer.models.transforms.graph_walk import walk
from keras_transformer.utils.types import Shape


def with_front_end(
    model: keras.Model,
    front_end: keras.layers.Layer,
    *,
    features: str = "features",
    name: str = "samples",
    shape: Shape = (None,),
) -> keras.Model:
    """Adds a feature extraction layer in front of a model.

    Args:
        model: Functional `keras.Model`, such as `models.Whisper`. Its layers are used, not copied.
        front_end: layer from the new input to the features, such as `audio.LogMel.whisper()`.
        features: str: name of the input to replace.
        name: str: name of the new input.
        shape: tuple: shape of the new input, without the batch axis.

    Returns:
        `keras.Model`: with the float input `name` instead of `features`.

    Raises:
        ValueError: the model has no such input, or the layer returns features of another shape.

    Example:

    >>> from keras_transformer.audio import LogMel
    >>> from keras_transformer.models import Size, WhisperEncoder
    >>> encoder = WhisperEncoder(Size(1, 16, 2, 32), num_frames=20)
    >>> model = with_front_end(encoder, LogMel.whisper(num_samples=3200))
    >>> model.input_shape, model.output_shape
    ((None, None), (None, 10, 16))
    """
    inputs = {tensor.name: tensor for tensor in keras.tree.flatten(model.input)}
    if features not in inputs:
        raise ValueError(f"{model.name!r} takes no {features!r}; its inputs are {sorted(inputs)}.")
    source = keras.Input(shape, name=name)
    extracted = front_end(source)
    if tuple(extracted.shape) != tuple(inputs[features].shape):
        raise ValueError(
            f"{front_end.name!r} returns {tuple(extracted.shape)}; {model.name!r} takes {inputs[features].shape}."
        )
    values = {id(tensor): tensor for tensor in inputs.values()} | {id(inputs[features]): extracted}
    walk(keras_private.nodes_in_order(model), values, lambda node, layer, args, kwargs: layer(*args, **kwargs))
    kept = {name: tensor for name, tensor in inputs.items() if name != features}
    outputs = keras.tree.map_structure(lambda tensor: values[id(tensor)], model.output)
    return keras.Model({name: source, **kept} if kept else source, outputs, name=model.name)
