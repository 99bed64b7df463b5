"""The SavedModel format: TensorFlow Serving, TF.js, and whatever else reads it."""

import tensorflow as tf

from keras_transformer.export.errors import ConversionError
from keras_transformer.export.saved_model.format import SAVED_MODEL
from keras_transformer.utils.captured_stderr import quiet

NAME = SAVED_MODEL.name


def write(traced, spec, directory):
    """Writes `saved_model/` with one signature per entry of the spec.

    The first signature is also saved as `serving_default`, the name that servers ask for.

    Args:
        traced: the `TracedModule`.
        spec: the `ExportSpec` it was traced from.
        directory: `pathlib.Path` to write into.

    Returns:
        Dict of signature name to the path, relative to `directory`, that holds it.

    Raises:
        ConversionError: TensorFlow cannot save the graphs.
    """
    names = spec.names(NAME)
    save(traced, names, directory / NAME)
    return dict.fromkeys(names, NAME)


def save(traced, names, path):
    """Writes a SavedModel with the signatures named, and the first as `serving_default` too."""
    signatures = {name: traced.functions[name] for name in names}
    signatures.setdefault("serving_default", traced.functions[names[0]])
    with quiet() as log:
        try:
            tf.saved_model.save(traced, str(path), signatures=signatures)
        except (ValueError, AssertionError, tf.errors.InvalidArgumentError) as error:
            raise ConversionError(NAME, error, log()) from error
