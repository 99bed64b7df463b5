"""Evaluation of quantized files: agreement with the float files, and loss of score."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

import numpy as np

from keras_transformer.export.errors import QuantizationError
from keras_transformer.utils.types import ArrayLike

_IGNORED = -100


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
            share of the predictions that stay the same. A prediction is the argmax over the last axis; of an axis of size 1,
            whether the number is above 0.5, or above 0 where some are not between 0 and 1: logits.
        labels: a batch of labels for each batch of inputs, or None: integers, where -100 is ignored, or one-hot rows. They
            measure the score, the accuracy; the agreement then counts labeled predictions only.
        score: callable from a runtime model to a float, higher is better, instead of `labels`: BLEU of a language model's
            texts, say.
        output: name of the output to take predictions from; the first when None.
        min_agreement: float in [0, 1] or None: the smallest agreement allowed.
        max_loss: float or None: the largest drop of the score allowed, in its unit; 0.005 is half a point of accuracy, of
            which all is 1.
        text: texts, or sequences of token ids, on which a language model is compared with the float one: perplexity,
            divergence and most likely tokens, see `Behavior`. Without any, the float model writes a text itself.

    Raises:
        QuantizationError: neither inputs, text nor a score, labels and a score at once, or a bound on what is not measured,
            or that nothing exceeds; labels that are no classes.

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
        if self.min_agreement is not None and not 0 <= self.min_agreement <= 1:
            raise QuantizationError(f"min_agreement is a share, from 0 to 1. Received: {self.min_agreement!r}")
        if self.max_loss is not None and self.labels is not None and not 0 <= self.max_loss < 1:
            raise QuantizationError(
                f"max_loss is a share of the accuracy, from 0 to below 1. Received: {self.max_loss!r}"
            )
        for each in self.labels or ():
            whole_numbers(each)

    def measure(self, model: Callable[[Any], Mapping[str, np.ndarray]]) -> Measurement:
        """The predictions and the score of a model.

        Args:
            model: callable from a batch to a dict of arrays, as `load` returns it; the argument of `score`.

        Returns:
            `Measurement`.
        """
        outputs = [self._output(model, batch) for batch in self.inputs]
        predictions = [predicted(each).reshape(-1) for each in outputs]
        if self.labels is None:
            found = np.concatenate(predictions) if predictions else None
            return {"answers": found, "score": float(self.score(model)) if self.score else None}
        pairs = zip(self.labels, outputs, strict=True)
        wanted = np.concatenate([classes(labels, each.shape).reshape(-1) for labels, each in pairs])
        found = np.concatenate(predictions)[wanted != -100]
        is_right: np.ndarray = found == wanted[wanted != -100]
        return {"answers": found, "score": float(is_right.mean())}

    def _output(self, model: Callable[[Any], Mapping[str, np.ndarray]], batch: object) -> np.ndarray:
        outputs = model(batch)
        return np.asarray(outputs[self.output] if self.output else next(iter(outputs.values())))


def predicted(outputs: np.ndarray) -> np.ndarray:
    """The class of each row of the last axis.

    Example:

    >>> predicted(np.array([[0.9, 0.1]])), predicted(np.array([[0.7], [0.2]])), predicted(np.array([[-3.0], [0.2]]))
    (array([0]), array([1, 0]), array([0, 1]))
    """
    if outputs.shape[-1] > 1:
        return outputs.argmax(axis=-1)
    is_share = outputs.min(initial=0) >= 0 and outputs.max(initial=0) <= 1
    return np.asarray(outputs[..., 0] > (0.5 if is_share else 0)).astype(int)


def whole_numbers(labels: ArrayLike) -> np.ndarray:
    """Labels as integers.

    Raises:
        QuantizationError: they are texts, or no whole numbers.
    """
    array = np.asarray(labels)
    if array.dtype.kind not in "biuf" or (array.dtype.kind == "f" and not (array == np.rint(array)).all()):
        example = f"{array.reshape(-1)[0]!r:.40}" if array.size else "none"
        raise QuantizationError(f"labels are the numbers of classes, or one-hot rows. Received: {example}")
    return array.astype("int64")


def classes(labels: ArrayLike, shape: tuple[int, ...]) -> np.ndarray:
    """The class of each prediction that labels name.

    Args:
        labels: whole numbers, one a prediction, or one-hot rows.
        shape: of the outputs, whose last axis has the classes.

    Raises:
        QuantizationError: there is not one label for each prediction, or one is no class.

    Example:

    >>> classes(np.eye(3)[[2, 0]], (2, 3)), classes([2, -100], (2, 3))
    (array([2, 0]), array([   2, -100]))
    """
    found, count = whole_numbers(labels), max(shape[-1], 2)
    if found.shape == shape and shape[-1] > 1:
        if not ((found.min(initial=0) >= 0) and (found.sum(-1) == 1).all()):
            raise QuantizationError("labels of the shape of the outputs must be one-hot rows")
        found = found.argmax(-1)
    if found.size * shape[-1] != int(np.prod(shape)):
        raise QuantizationError(f"there are labels of shape {found.shape} for outputs of shape {shape}")
    wrong = found[(found != _IGNORED) & ((found < 0) | (found >= count))]
    if wrong.size:
        raise QuantizationError(f"a label is {wrong[0]}; the outputs have {count} classes, from 0")
    return found


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
