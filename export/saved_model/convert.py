"""Conversion to SavedModel."""

from __future__ import annotations

import pathlib
from typing import Any

import tensorflow as tf

from keras_transformer.export.errors import ConversionError
from keras_transformer.export.saved_model.library import NAME
from keras_transformer.export.spec.export_spec import ExportSpec
from keras_transformer.export.spec.traced import TracedModule
from keras_transformer.utils.captured_stderr import captured


def write(traced: TracedModule, spec: ExportSpec, directory: pathlib.Path) -> dict[str, str]:
    """Writes `saved_model/` with one signature per entry of the spec.

    The first signature is also saved as `serving_default`, the default name of servers.

    Args:
        traced: the `TracedModule`.
        spec: the `ExportSpec` it was traced from.
        directory: `pathlib.Path` to write into.

    Returns:
        Dict of signature name to the path, of its file, relative to `directory`.

    Raises:
        ConversionError: TensorFlow cannot save the graphs.
    """
    names = spec.names(NAME)
    save(traced, names, directory / NAME)
    return dict.fromkeys(names, NAME)


def save(traced: Any, names: list[str], path: pathlib.Path) -> None:
    """Writes a SavedModel with some signatures of a module, the first as `serving_default` too."""
    signatures = {name: traced.functions[name] for name in names}
    signatures.setdefault("serving_default", traced.functions[names[0]])
    with captured() as log:
        try:
            tf.saved_model.save(traced, str(path), signatures=signatures)
        except (ValueError, AssertionError, tf.errors.InvalidArgumentError) as error:
            raise ConversionError(NAME, error, log()) from error
