"""The quantizations that `compress` tries."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from keras_transformer.quantization import WeightScheme

if TYPE_CHECKING:
    import keras

    from keras_transformer.quantization import Method


@dataclasses.dataclass(frozen=True)
class Candidate:
    """One way to make a model smaller.

    Args:
        mode: a mode of `export` that needs no data, such as "int8"; None for weights that are rounded with data.
        schemes: `WeightScheme`, or a dict of patterns of paths to schemes; "budget": those that `choose_schemes` finds.
        method: name in `quantization.METHODS`, or a `Method`.

    Example:

    >>> Candidate(schemes=WeightScheme(4, None), method="gptq").mode is None
    True
    """

    mode: str | None = None
    schemes: WeightScheme | Mapping[str, WeightScheme | None] | str | None = None
    method: str | Method = "gptq"


CANDIDATES: dict[str, Candidate] = {
    "fp16": Candidate("fp16"),
    "int8": Candidate("int8"),
    "int8, GPTQ": Candidate(schemes=WeightScheme(8, None)),
    "int4 in blocks, GPTQ": Candidate(schemes=WeightScheme(4, 32)),
    "int4 by row, GPTQ": Candidate(schemes=WeightScheme(4, None)),
    "mixed, GPTQ": Candidate(schemes="budget"),
}


@contextlib.contextmanager
def rounded(model: keras.Model, candidate: Candidate, schemes: Any, data: Any) -> Iterator[keras.Model]:
    """Context in which the weights of a model are those of a candidate. Afterwards they are what they were.

    Args:
        model: `keras.Model`.
        candidate: `Candidate` without a mode.
        schemes: its schemes, or those that were chosen for the budget.
        data: batches, as `quantize_weights` takes them.

    Raises:
        WeightQuantizationError: see `quantize_weights`.
    """
    from keras_transformer.quantization import quantize_weights

    values = model.get_weights()
    before = getattr(model, "quantized_weights", None)
    try:
        quantize_weights(model, schemes, candidate.method, data)
        yield model
    finally:
        model.set_weights(values)
        model.quantized_weights = before
