"""The quantizations that `compress` tries, and what the weights of a model lose in each scheme, for mixtures of them."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.export.errors import QuantizationError
from keras_transformer.export.verification.quantized.evaluation import Evaluation
from keras_transformer.quantization import WeightScheme
from keras_transformer.quantization.choose_schemes import Choice, measured
from keras_transformer.quantization.observation.recording import outputs_of

if TYPE_CHECKING:
    import keras

    from keras_transformer.quantization import Method

# Predictions that a sensitivity is measured on: an image has one, a text one for each token.
_PREDICTIONS = 512


@dataclasses.dataclass(frozen=True)
class Candidate:
    """One way to make a model smaller.

    Args:
        mode: a mode of `export` that needs no data, such as "int8"; None for weights that are rounded with data.
        schemes: `WeightScheme`, or a dict of patterns of paths to schemes; "budget": those that `choose_schemes` finds.
        method: name in `quantization.METHODS`, or a `Method`.
        trains_scales: bool. Whether `training.train_scales` follows, with the float model as teacher.

    Example:

    >>> Candidate(schemes=WeightScheme(4, None), method="gptq").mode is None
    True
    """

    mode: str | None = None
    schemes: WeightScheme | Mapping[str, WeightScheme | None] | str | None = None
    method: str | Method = "gptq"
    trains_scales: bool = False


CANDIDATES: dict[str, Candidate] = {
    "fp16": Candidate("fp16"),
    "int8": Candidate("int8"),
    "int8, GPTQ": Candidate(schemes=WeightScheme(8, None)),
    "int4 in blocks, GPTQ": Candidate(schemes=WeightScheme(4, 32)),
    "int4 in blocks, GPTQ, trained": Candidate(schemes=WeightScheme(4, 32), trains_scales=True),
    "int4 by row, GPTQ": Candidate(schemes=WeightScheme(4, None)),
    "mixed, GPTQ": Candidate(schemes="budget"),
}


@contextlib.contextmanager
def rounded(
    model: keras.Model,
    candidate: Candidate,
    schemes: WeightScheme | Mapping[str, WeightScheme | None],
    data: Iterable[object],
) -> Iterator[keras.Model]:
    """Context with a model whose weights are those of a candidate: the given one, which is afterwards what it was, or a copy
    with scales that were trained.

    Args:
        model: `keras.Model`.
        candidate: `Candidate` without a mode.
        schemes: its schemes, or those that were chosen for the budget.
        data: batches, as `quantize_weights` takes them.

    Raises:
        WeightQuantizationError: see `quantize_weights`.
        QuantizationError: scales are to be trained, and the outputs are probabilities; see `training.Distillation`.
    """
    from keras_transformer.quantization import quantize_weights

    values = model.get_weights()
    before = getattr(model, "quantized_weights", None)
    try:
        quantize_weights(model, schemes, candidate.method, data)
        yield _trained(model, values, data) if candidate.trains_scales else model
    finally:
        model.set_weights(values)
        model.quantized_weights = before


def _trained(model: keras.Model, values: list[np.ndarray], data: Iterable[object]) -> keras.Model:
    """A copy of a rounded model with scales that were trained; the teacher has the values of before."""
    from keras_transformer.training import train_scales

    teacher = type(model).from_config(model.get_config())
    teacher.set_weights(values)
    try:
        return train_scales(model, teacher, data, verbose=0)
    except ValueError as error:
        raise QuantizationError(str(error)) from error


def measured_choices(
    model: keras.Model, batches: Sequence[Mapping[str, np.ndarray]], evaluation: Evaluation
) -> dict[str, list[Choice]]:
    """The schemes of each weight with what they lose, for `choose_schemes.within`.

    The loss is the divergence of the predictions; of models with a score of their own, which may predict no classes, the
    change of the outputs.

    Args:
        model: Functional `keras.Model`.
        batches: those of `as_batches`.
        evaluation: `Evaluation`.
    """
    predicts = evaluation.score is None or hasattr(model, "generation_spec")
    return measured(model, _some(model, batches), measure="divergence" if predicts else "output")


def _some(model: keras.Model, batches: Sequence[Mapping[str, np.ndarray]]) -> list[dict[str, np.ndarray]]:
    """The first examples, with about 512 predictions or a few more."""
    first = {name: array[:1] for name, array in batches[0].items()}
    positions = max(math.prod(each.shape[1:-1]) for each in outputs_of(model, first))
    wanted, found = -(-_PREDICTIONS // positions), []
    for batch in batches:
        if wanted <= 0:
            break
        found.append({name: array[:wanted] for name, array in batch.items()})
        wanted -= len(next(iter(batch.values())))
    return found
