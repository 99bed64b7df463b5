"""Giving Keras the classes of this package, and turning names, instances and configs into objects."""

import importlib

import keras

# Every room, and every file beside them, that holds classes a saved model may name.
_SERIALIZABLE = (
    "attention",
    "positions",
    "feedforward",
    "recurrence",
    "blocks",
    "vision",
    "audio",
    "models",
    "tasks",
    "layers.norms",
    "layers.projection",
    "layers.ternary",
    "training.contrastive_loss",
    "training.layerwise_rates",
    "training.losses",
    "training.metrics",
    "training.schedules",
)


def serializable(cls):
    """Registers a class or function with Keras, so that saved models find it again."""
    return keras.saving.register_keras_serializable(package="keras_transformer")(cls)


def load_model(path, **kwargs):
    """Loads a `.keras` file that may hold any layer of this package.

    Keras finds a custom class only when its module has been imported; this imports them all first.

    Args:
        path: str or path. The `.keras` file.
        **kwargs: passed on to `keras.models.load_model`.

    Returns:
        The `keras.Model`.

    Example:

    >>> from keras_transformer import load_model, models
    >>> models.ViT(models.Size(1, 8, 2, 16), patch_size=4, image_size=8).save("vit.keras")
    >>> load_model("vit.keras").count_params()
    1056
    """
    register_all()
    return keras.models.load_model(path, **kwargs)


def register_all():
    """Imports every room, so that Keras knows all serializable classes of this package."""
    for room in _SERIALIZABLE:
        importlib.import_module(f"keras_transformer.{room}")


def resolve(identifier, choices, base=None, **options):
    """Turns a name, an instance or a config into an instance.

    Args:
        identifier: str (a key of `choices`), an instance, or a serialized config. `None` gives `None`.
        choices: dict of name to class or factory.
        base: class that an instance must be of. Defaults to any Keras object.
        **options: what the class is called with where it is named.

    Returns:
        The instance.

    Raises:
        ValueError: the name is unknown (the message lists the valid ones), or the object is of the wrong kind.
    """
    if isinstance(identifier, str):
        return choice(identifier, choices)(**options)
    if isinstance(identifier, dict):
        identifier = keras.saving.deserialize_keras_object(identifier)
    if identifier is None or base is None or isinstance(identifier, base):
        return identifier
    raise ValueError(f"Expected a {base.__name__}, its config, or one of {sorted(choices)}. Received: {identifier!r}")


def choice(name, choices):
    """Looks `name` up in `choices`; an unknown name raises `ValueError` that lists the valid ones."""
    if name not in choices:
        raise ValueError(f"Unknown name {name!r}. Valid names: {', '.join(sorted(choices))}")
    return choices[name]


def clone(layer, **changes):
    """A new, unbuilt layer with the configuration of `layer`, but for `changes`; `None` stays `None`.

    It is named anew unless `changes` name it: one template serves many places.
    """
    if layer is None:
        return None
    return type(layer).from_config({**layer.get_config(), "name": None, **changes})


def serialize(layer):
    """The config of a layer that stands inside another's; None stays None.

    Without the shapes that it was built with: Keras would build it from them by itself, outside its parent, and its weights
    would come back under other paths.
    """
    if layer is None:
        return None
    config = keras.saving.serialize_keras_object(layer)
    config.pop("build_config", None)
    return config


def serialize_shared(layer):
    """As `serialize`, of a layer that several others may hold: a saved model has it once again when it is loaded.

    Keras marks what it meets a second time, and the first config of it only where no other layer has copied that by then.
    So it meets this one twice here. Outside of saving a model nothing is marked.
    """
    serialize(layer)
    return serialize(layer)


def build_once(layer, *shapes):
    """Builds `layer` unless it is built already, as an instance that the user has called may be."""
    if not layer.built:
        layer.build(*shapes)
