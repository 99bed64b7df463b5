"""Evaluation of quantized files: agreement with the float files, and loss of score."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

import numpy as np

from keras_transformer.export.errors import QuantizationError
from keras_transformer.utils.types import ArrayLike


class Measurement(TypedDict):
    """What an evaluation finds of a model: all predictions, an array of integers, and the score; None where not measured."""

    answers: np.ndarray | None
    score: float | None


class Loss(TypedDict):
    """What quantization costs: both scores, and the share of the predictions that stay; None where not measured."""

    score_float: float | None
    score: float | None
    agreement: float | None


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Data on which a quantized file is compared with the float one, in the same runtime, and the loss that is allowed.

    Args:
        inputs: batches: dicts of arrays by input name, or arrays of a model with one input. They measure the agreement: the
            share of the predictions, the argmax over the last axis, that stay the same.
        labels: a batch of integer labels for each batch of inputs, where -100 is ignored, or None. They measure the score,
            the accuracy; the agreement then counts labeled predictions only.
        score: callable from a runtime model to a float, higher is better, instead of `labels`: BLEU of a language model's
            texts, say.
        output: name of the output to take predictions from; the first when None.
        min_agreement: float in [0, 1] or None: the smallest agreement allowed.
        max_loss: float or None: the largest drop of the score allowed, in its unit; 0.005 is half a point of accuracy.
        text: texts, or sequences of token ids, on which a language model is compared with the float one: perplexity,
            divergence and most likely tokens, see `Behavior`. Without any, the float model writes a text itself.

    Raises:
        QuantizationError: neither inputs, text nor a score, labels and a score at once, or a bound on what is not measured.

    Example:

    >>> evaluation = Evaluation(inputs=[np.eye(2)], labels=[np.array([0, 1])], max_loss=0.0)
    >>> evaluation.measure(lambda inputs: {"logits": inputs})["score"]
    1.0
    """

    inputs: Sequence[Any] = ()
    labels: Sequence[ArrayLike] | None = None
    score: Callable[[Any], float] | None = None
    output: str | None = None
    min_agreement: float | None = None
    max_loss: float | None = None
    text: Sequence[Any] = ()

    def __post_init__(self) -> None:
        if isinstance(self.text, str):
            object.__setattr__(self, "text", (self.text,))
        if not len(self.inputs) and self.score is None and not len(self.text):
            raise QuantizationError("an evaluation needs inputs, or a score, or text")
        if self.labels is not None and (self.score is not None or len(self.labels) != len(self.inputs)):
            raise QuantizationError(
                "an evaluation takes one batch of labels for each batch of inputs, or a score instead"
            )
        if self.max_loss is not None and self.labels is None and self.score is None:
            raise QuantizationError("max_loss needs labels, or a score")
        if self.min_agreement is not None and not len(self.inputs):
            raise QuantizationError("min_agreement needs inputs")

    def measure(self, model: Callable[[Any], Mapping[str, np.ndarray]]) -> Measurement:
        """The predictions and the score of a model.

        Args:
            model: callable from a batch to a dict of arrays, as `load` returns it; the argument of `score`.

        Returns:
            `Measurement`.
        """
        predictions = [self._predictions(model, batch) for batch in self.inputs]
        if self.labels is None:
            found = np.concatenate(predictions) if predictions else None
            return {"answers": found, "score": float(self.score(model)) if self.score else None}
        wanted = np.concatenate([np.asarray(each).reshape(-1) for each in self.labels])
        found = np.concatenate(predictions)[wanted != -100]
        is_right: np.ndarray = found == wanted[wanted != -100]
        return {"answers": found, "score": float(is_right.mean())}

    def _predictions(self, model: Callable[[Any], Mapping[str, np.ndarray]], batch: object) -> np.ndarray:
        outputs = model(batch)
        array = outputs[self.output] if self.output else next(iter(outputs.values()))
        return np.asarray(array).argmax(axis=-1).reshape(-1)


def check_loss(
    evaluation: Evaluation, name: str, before: Measurement, after: Measurement, advice: Callable[[], str] = str
) -> Loss:
    """Compares two measurements, and raises if the loss exceeds the bounds.

    Args:
        evaluation: `Evaluation`.
        name: what was quantized, for the error.
        before, after: results of `measure` for the float and for the quantized model.
        advice: what the error says besides, found where a bound is exceeded.

    Returns:
        `Loss`.

    Raises:
        QuantizationError: a bound is exceeded; the message has the measurements.
    """
    agreement = None
    if before["answers"] is not None and after["answers"] is not None:
        stays: np.ndarray = before["answers"] == after["answers"]
        agreement = float(stays.mean())
    if agreement is not None and evaluation.min_agreement is not None and not agreement >= evaluation.min_agreement:
        raise QuantizationError(
            f"{name}: {agreement:.2%} of the predictions stay, at least {evaluation.min_agreement:.2%} must{advice()}"
        )
    old, new = before["score"], after["score"]
    limit = evaluation.max_loss
    if limit is not None and old is not None and new is not None and not old - new <= limit:
        figures = f"the score falls from {old:.4g} to {new:.4g}, by more than {limit:.4g}"
        raise QuantizationError(f"{name}: {figures}{advice()}")
    return {"score_float": old, "score": new, "agreement": agreement}
