"""Quantization of models whose float files are too large to be run.

Their float files are written and compared with the variables weight by weight, and what is quantized is compared with them,
as for any model. They are not run: the Keras model itself predicts what the quantized files are held to. What this leaves
open is said in the manifest.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from keras_transformer.export.formats import FORMATS
from keras_transformer.export.quantization.options import Quantization

if TYPE_CHECKING:
    import keras

# Bytes of the weights in float32: those of a larger model are not loaded by a runtime beside it.
LARGEST_RUN = 2**31
# What the manifest says of float files that were not run.
NOT_RUN = "compared with the model weight by weight, not run"


def runs_float_files(model: keras.Model, formats: Iterable[str], precisions: Sequence[Quantization | None]) -> bool:
    """Whether an export runs the float files that it quantizes.

    Args:
        model: the model.
        formats: names of the formats.
        precisions: what is written: a `Quantization` or None, for float files, each.

    Returns:
        True for models up to 2 GB, and where float files are part of what is written.
    """
    if None in precisions or not all(FORMATS[name].takes_large_weights for name in formats):
        return True
    return 4 * sum(math.prod(variable.shape) for variable in model.variables) <= LARGEST_RUN
