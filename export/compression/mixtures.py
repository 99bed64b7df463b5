"""What the weights of a model lose in each scheme, for mixtures of schemes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.export.verification.quantized.evaluation import Evaluation
from keras_transformer.quantization.choose_schemes import Choice, measured
from keras_transformer.quantization.observation.recording import outputs_of

if TYPE_CHECKING:
    import keras

# Predictions that a sensitivity is measured on: an image has one, a text one for each token.
_PREDICTIONS = 512


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
    return measured(model, some(model, batches), measure="divergence" if predicts else "output")


def some(model: keras.Model, batches: Sequence[Mapping[str, np.ndarray]]) -> list[dict[str, np.ndarray]]:
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
