"""Reading the weights of a written SavedModel, for the comparison with the Keras variables."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator, Sequence

from keras_transformer.export.data.weights import StoredWeight
from keras_transformer.export.runtime.libraries import SAVED_MODEL

_KEY = re.compile(r"(?P<group>exported_variables|small)/(?P<index>\d+)/(?P<part>\w*/)?\.ATTRIBUTES/VARIABLE_VALUE")


def stored_weights(directory: pathlib.Path, files: dict[str, str], names: Sequence[str]) -> Iterator[StoredWeight]:
    """Yields the variables of a SavedModel, which are in the order of `TracedModule.exported_variables`.

    Args:
        directory: `pathlib.Path` of the bundle.
        files: dict of signature name to the SavedModel's path in it.
        names: names of the variables in that order.

    Yields:
        `StoredWeight`.
    """
    import tensorflow as tf

    reader = tf.train.load_checkpoint(str(directory / SAVED_MODEL / "variables" / "variables"))
    for key in sorted(reader.get_variable_to_shape_map()):
        match = _KEY.fullmatch(key)
        if match and match["group"] == "exported_variables":
            yield StoredWeight(key, reader.get_tensor(key), names[int(match["index"])], True)
