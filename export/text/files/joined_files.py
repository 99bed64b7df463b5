"""What files share that are a model behind its tokenizer: their inputs, and how they are compared with the bundle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.export.bundle.tokenizers import encode_texts
from keras_transformer.export.data.array_spec import ArraySpec
from keras_transformer.export.errors import InputError, InvalidModelError, ParityError, RunError
from keras_transformer.export.text.graph import IDS, MASK, SEGMENTS
from keras_transformer.export.verification.comparison import Limit, compare

if TYPE_CHECKING:
    from keras_transformer.export.runtime.runtime_model import RuntimeModel
    from keras_transformer.text import Tokenizer

_ROUNDING = Limit(tolerance=1e-5)


def check_inputs(name: str, inputs: Sequence[ArraySpec]) -> None:
    """Refuses a signature that takes something else than a tokenizer returns.

    Raises:
        InvalidModelError: names the input.
    """
    for each in inputs:
        if each.name not in (IDS, MASK, SEGMENTS):
            raise InvalidModelError(f"signature '{name}' takes '{each.name}', which is no part of a text")


def outputs_for(model: RuntimeModel, texts: list[str], tokenizer: Tokenizer) -> Any:
    """What a signature returns for texts; None where it does not take them.

    Args:
        model: loaded model of the bundle.
        texts: list of str.
        tokenizer: its tokenizer.
    """
    try:
        return model(encode_texts(texts, tokenizer, model.tokenizer_options, model.inputs))
    except (InputError, RunError):
        return None


def check_equal(format: str, output: str, label: str, found: np.ndarray, wanted: np.ndarray) -> None:
    """Compares an output. Floats may differ by rounding: the runtime may compute the joined graph in another order.

    Raises:
        ParityError: it differs.
    """
    is_equal = found.shape == wanted.shape
    if is_equal and wanted.dtype.kind == "f":
        is_equal = compare(found, wanted, limit=_ROUNDING).is_accepted
    elif is_equal:
        is_equal = np.array_equal(found, wanted)
    if not is_equal:
        detail = "is not what the bundle returns for the same texts"
        raise ParityError(format, output, label, np.nan, 1.0, 0.0, detail)
