"""Registration of classes with Keras, and objects from names, instances and configs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self, TypeVar

import keras

from keras_transformer.utils.choice import choice as choice
from keras_transformer.utils.keras_registration import PACKAGE, register_placeholders
from keras_transformer.utils.types import Config, Path, Shape

_T = TypeVar("_T")


class Configured:
    """Base of an object, such as a process or a scaling, that its config, the arguments of its constructor, makes again.

    Example:

    >>> from keras_transformer.diffusion import RectifiedFlow
    >>> RectifiedFlow.from_config(RectifiedFlow(shift=3.0).get_config()).shift
    3.0
    """

    @classmethod
    def from_config(cls, config: Config) -> Self:
        """Returns the object of a config."""
        make: Any = cls
        return make(**config)


def serializable(cls: _T) -> _T:
    """Registers a class or function with Keras as `keras_transformer>Name`, for saved models to find.

    `utils.keras_registration` searches the source files for this decorator, which must be alone on its line.

    Example:

    >>> from keras_transformer.feedforward import DenseFeedForward
    >>> keras.saving.get_registered_name(DenseFeedForward)
    'keras_transformer>DenseFeedForward'
    """
    return keras.saving.register_keras_serializable(package=PACKAGE)(cls)


def load_model(path: Path, **kwargs: object) -> keras.Model:
    """Loads a `.keras` file that may contain any layer of this package: `keras.models.load_model`.

    Args:
        path: str or path of the `.keras` file.
        **kwargs: options of `keras.models.load_model`.

    Returns:
        `keras.Model`.

    Example:

    >>> from keras_transformer import load_model, models
    >>> models.ViT(models.Size(1, 8, 2, 16), patch_size=4, image_size=8).save("vit.keras")
    >>> load_model("vit.keras").count_params()
    1056
    """
    register_placeholders()
    return keras.models.load_model(path, **kwargs)


def resolve(
    identifier: object,
    choices: Mapping[str, Callable[..., Any]],
    base: type | None = None,
    *,
    argument: str | None = None,
    **options: object,
) -> Any:
    """Returns an instance from a name, a config or an instance.

    Args:
        identifier: str (a key of `choices`), an instance, a serialized config, or None.
        choices: dict of name to class or factory.
        base: class that an instance must be of. Defaults to any class.
        argument: str. The name of the caller's argument, for the error message.
        **options: arguments of the class, if `identifier` is a name.

    Returns:
        The instance; None for None.

    Raises:
        ValueError: the name is unknown (the message suggests the nearest and lists the valid ones), or the object is of the
            wrong class.

    Example:

    >>> resolve("relu", {"relu": keras.layers.ReLU}, max_value=6.0).max_value
    6.0
    """
    if isinstance(identifier, str):
        return choice(identifier, choices, argument=argument)(**options)
    if isinstance(identifier, dict):
        identifier = keras.saving.deserialize_keras_object(identifier)
    if identifier is None or base is None or isinstance(identifier, base):
        return identifier
    names = f", its config, or one of {sorted(choices)}" if choices else " or its config"
    prefix = f"{argument}: " if argument else ""
    raise ValueError(f"{prefix}Expected a {base.__name__}{names}. Received: {identifier!r}")


def clone(layer: keras.layers.Layer, **changes: object) -> Any:
    """Returns a new, unbuilt layer with the config of `layer`, except for `changes`; None for None.

    Its name is new unless `changes` contains one: a template may be cloned many times.

    Example:

    >>> clone(keras.layers.Dense(3, use_bias=False), units=5).get_config()["use_bias"]
    False
    """
    if layer is None:
        return None
    return type(layer).from_config({**layer.get_config(), "name": None, **changes})


def serialize(layer: keras.layers.Layer) -> Config | None:
    """Returns the config of a layer that another layer contains; None for None.

    Without the shapes that it was built with: Keras would build it from these outside its parent, and its weights would get
    other paths.

    Example:

    >>> serialize(keras.layers.Dense(3))["class_name"]
    'Dense'
    """
    if layer is None:
        return None
    config = keras.saving.serialize_keras_object(layer)
    config.pop("build_config", None)
    return config


def model_record(model: keras.Model) -> Config:
    """Returns the config of a model with its class, for `keras.saving.deserialize_keras_object`; not how it was compiled."""
    record = keras.saving.serialize_keras_object(model)
    record.pop("compile_config", None)
    return record


def serialize_shared(layer: keras.layers.Layer) -> Config | None:
    """Returns the config of a layer that several others may contain: a loaded model has it once, too.

    Keras marks an object as shared when it serializes it a second time, and the first config only if no other layer has
    copied that by then. This serializes it twice, so that every config is marked. Outside of saving, nothing is marked.

    Example:

    >>> serialize_shared(keras.layers.Dense(3))["class_name"]
    'Dense'
    """
    serialize(layer)
    return serialize(layer)


def build_once(layer: keras.layers.Layer, *shapes: Shape) -> None:
    """Builds `layer` unless it is built already, as an instance that the user has called may be.

    Example:

    >>> layer = keras.layers.Dense(3)
    >>> build_once(layer, (None, 2)), build_once(layer, (None, 2))
    (None, None)
    """
    if not layer.built:
        layer.build(*shapes)
