"""What quantization does to the task: how often the top answer stays, and how much of the score is lost."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from keras_transformer.export.errors import QuantizationError


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Data on which a quantized file is compared with the float one, in the same runtime, and what it may lose.

    Args:
        inputs: batches: dicts of arrays by input name, or arrays of a model with one input. They give the agreement: the
            share of all top answers, the largest of each last axis, that stay the same.
        labels: a batch of integer labels for each batch of inputs, where -100 is not counted, or None. They give the score:
            the share of top answers that are right; and the agreement is then counted where there are labels.
        score: callable from a model of the runtime to a float, higher is better, in place of `labels`: BLEU of what a
            language model generates, say. It may ask whatever it likes.
        output: name of the output that holds the answers; the first when None.
        min_agreement: float in [0, 1] or None: the least agreement that is accepted.
        max_loss: float or None: how much lower the score may be, in its own unit; 0.005 is half a point of accuracy.

    Raises:
        QuantizationError: nothing to measure, labels and score at once, or a bound on what is not measured.

    Example:

    >>> evaluation = Evaluation(inputs=[np.eye(2)], labels=[np.array([0, 1])], max_loss=0.0)
    >>> evaluation.measure(lambda inputs: {"logits": inputs})["score"]
    1.0
    """

    inputs: Sequence = ()
    labels: Sequence | None = None
    score: Callable[[Any], float] | None = None
    output: str | None = None
    min_agreement: float | None = None
    max_loss: float | None = None

    def __post_init__(self):
        if not len(self.inputs) and self.score is None:
            raise QuantizationError("an evaluation needs inputs, or a score")
        if self.labels is not None and (self.score is not None or len(self.labels) != len(self.inputs)):
            raise QuantizationError(
                "an evaluation takes one batch of labels for each batch of inputs, or a score instead"
            )
        if self.max_loss is not None and self.labels is None and self.score is None:
            raise QuantizationError("max_loss needs labels, or a score")
        if self.min_agreement is not None and not len(self.inputs):
            raise QuantizationError("min_agreement needs inputs")

    def measure(self, model):
        """What a model answers.

        Args:
            model: callable from a batch to a dict of arrays, as `load` returns it; what `score` takes.

        Returns:
            dict of "answers", an integer array of all top answers, and "score", a float or None.
        """
        answers = [self._answers(model, batch) for batch in self.inputs]
        if self.labels is None:
            found = np.concatenate(answers) if answers else None
            return {"answers": found, "score": float(self.score(model)) if self.score else None}
        wanted = np.concatenate([np.asarray(each).reshape(-1) for each in self.labels])
        found = np.concatenate(answers)[wanted != -100]
        return {"answers": found, "score": float(np.mean(found == wanted[wanted != -100]))}

    def _answers(self, model, batch):
        outputs = model(batch)
        array = outputs[self.output] if self.output else next(iter(outputs.values()))
        return np.asarray(array).argmax(axis=-1).reshape(-1)


def check_loss(evaluation, name, before, after):
    """Compares two measurements, and refuses a loss that is not allowed.

    Args:
        evaluation: `Evaluation`.
        name: what was quantized, for the error.
        before, after: what `measure` gave for the float and for the quantized model.

    Returns:
        dict of "score_float", "score" and "agreement": floats, or None where not measured.

    Raises:
        QuantizationError: gives the figures.
    """
    agreement = None if after["answers"] is None else float(np.mean(before["answers"] == after["answers"]))
    if evaluation.min_agreement is not None and not agreement >= evaluation.min_agreement:
        raise QuantizationError(
            f"{name}: {agreement:.2%} of the top answers stay, at least {evaluation.min_agreement:.2%} must"
        )
    old, new = before["score"], after["score"]
    if evaluation.max_loss is not None and not old - new <= evaluation.max_loss:
        raise QuantizationError(
            f"{name}: the score falls from {old:.4g} to {new:.4g}, by more than {evaluation.max_loss:.4g}"
        )
    return {"score_float": old, "score": new, "agreement": agreement}
