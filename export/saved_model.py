"""The SavedModel format: TensorFlow Serving, TF.js, and whatever else reads it."""

import tensorflow as tf

from keras_transformer.export.errors import ConversionError
from keras_transformer.export.quiet import quiet

NAME = "saved_model"


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
    signatures = dict(traced.functions)
    signatures.setdefault("serving_default", next(iter(traced.functions.values())))
    with quiet() as log:
        try:
            tf.saved_model.save(traced, str(directory / NAME), signatures=signatures)
        except (ValueError, AssertionError, tf.errors.InvalidArgumentError) as error:
            raise ConversionError(NAME, error, log()) from error
    return dict.fromkeys(spec.signatures, NAME)
