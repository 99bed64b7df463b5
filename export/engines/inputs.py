"""What engines that pass one image or one text ask of a model."""

from collections.abc import Collection

import keras

from keras_transformer.export.errors import InvalidModelError
from keras_transformer.export.spec import names


def check_image_inputs(model: keras.Model, passed: str) -> None:
    """Refuses a model that does not take images with three channels of a fixed size, alone.

    Args:
        model: Functional model.
        passed: text for the error: what passes it, such as "MediaPipe passes one image".

    Raises:
        InvalidModelError: names the shape.
    """
    shape = keras.tree.flatten(model.input)[0].shape
    if len(names.input_names(model)) != 1 or len(shape) != 4 or shape[-1] != 3 or None in shape[1:]:
        raise InvalidModelError(f"{passed} (height, width, 3) of a fixed size; '{model.name}' takes {shape}")


def check_text_inputs(model: keras.Model, engine: str, known: Collection[str]) -> None:
    """Refuses a model that takes no token ids, or something that an engine does not pass.

    Args:
        model: Functional model.
        engine: name of the engine, for the error.
        known: names of the inputs that the engine passes.

    Raises:
        InvalidModelError: names the inputs.
    """
    inputs = names.input_names(model)
    if "token_ids" not in inputs or set(inputs) - set(known):
        raise InvalidModelError(f"{engine} passes {', '.join(known)}; '{model.name}' takes {', '.join(inputs)}")
