"""What a loss requires of labels."""

from __future__ import annotations

import dataclasses
from typing import Any

import keras
import numpy as np

from keras_transformer.training.errors import DataError
from keras_transformer.training.losses.masked_crossentropy import MaskedCrossentropy
from keras_transformer.training.monitoring.names import first_place
from keras_transformer.training.trainers.next_token_trainer import NextTokenTrainer
from keras_transformer.utils.types import Tensors

_TOLERANCE = 1e-3


@dataclasses.dataclass(frozen=True)
class LabelRule:
    """The labels that a cross-entropy accepts.

    Attributes:
        kind: "sparse" for class ids, "categorical" for a distribution over classes, "binary" for probabilities.
        name: str. Name of the array in messages, such as "y".
        key: str or int or None. Its key or index in the structure of labels; None if that is a single array.
        classes: int. Number of classes.
        ignored: int or None. Class id of positions that do not count.
    """

    kind: str
    name: str
    key: Any
    classes: int
    ignored: int | None = None

    def check(self, batch: str, y: Tensors | None, sample_weight: Tensors | None) -> np.ndarray | None:
        """Raises an error if labels are not those of the loss, or none counts.

        Args:
            batch: str. The subject of the message.
            y: structure of labels.
            sample_weight: structure of weights or None.

        Returns:
            Boolean array `(B,)`, whether a label of the row counts; None if weights have another structure.

        Raises:
            DataError: a label out of range, probabilities that do not sum to 1, no label that counts, or no labels at all.
        """
        if y is None:
            raise DataError(f"{batch} has no labels, which the loss needs")
        labels = np.asarray(keras.ops.convert_to_numpy(y if self.key is None else y[self.key]))
        counts = np.ones(labels.shape, bool)
        if self.kind == "sparse":
            counts = self._check_ids(batch, labels)
        else:
            self._check_probabilities(batch, labels)
        counts = np.any(counts.reshape(len(labels), -1), axis=1)
        if sample_weight is None:
            return counts
        if isinstance(sample_weight, (dict, list, tuple)):
            return None
        weights = np.asarray(keras.ops.convert_to_numpy(sample_weight))
        if not weights.any():
            raise DataError(f"{batch}: every value of 'sample_weight' is 0, so that the loss is 0.")
        return np.logical_and(counts, np.any(weights.reshape(len(weights), -1), axis=1))

    def _check_ids(self, batch, labels):
        ignores = f", or {self.ignored} where there is no label" if self.ignored is not None else ""
        expected = f"the classes are 0 to {self.classes - 1}{ignores}."
        counts = np.ones(labels.shape, bool) if self.ignored is None else labels != self.ignored
        for wrong in (labels != np.floor(labels), counts & ((labels < 0) | (labels >= self.classes))):
            if wrong.any():
                found, where = first_place(labels, wrong)
                raise DataError(f"{batch}: label '{self.name}' is {found} at {where}; {expected}")
        if not counts.any():
            raise DataError(f"{batch}: every label of '{self.name}' is {self.ignored}, so that the loss is 0.")
        return counts

    def _check_probabilities(self, batch, labels):
        wrong = (labels < 0) | (labels > 1)
        if wrong.any():
            found, where = first_place(labels, wrong)
            raise DataError(f"{batch}: label '{self.name}' is {found} at {where}; it must be in 0 to 1.")
        if self.kind == "categorical":
            sums = labels.sum(axis=-1, dtype="float64")
            wrong = np.abs(sums - 1) > _TOLERANCE
            if wrong.any():
                found, where = first_place(sums, wrong)
                raise DataError(
                    f"{batch}: label '{self.name}' sums to {found} over the classes at {where}; it must sum to 1."
                )


def label_rules(model: keras.Model, y: Tensors | None, outputs: Tensors) -> list[LabelRule]:
    """Returns the rules of the labels whose loss is a cross-entropy, after a look at the model's outputs.

    Args:
        model: a compiled `keras.Model`.
        y: labels of a batch.
        outputs: outputs of the model for it.

    Raises:
        DataError: the loss expects probabilities, and the outputs are none.
    """
    if isinstance(model, NextTokenTrainer):
        return [LabelRule("sparse", "y", None, model.language_model.vocabulary_size, model.ignore_id)]
    rules = []
    for key, loss, output in _losses(getattr(model, "loss", None), y, outputs):
        name = "y" if key is None else f"y[{key!r}]"
        kind, options = _kind(loss)
        if kind is None:
            continue
        if options.get("from_logits") is False:
            _check_is_probability(name, output)
        classes = 1 if kind == "binary" else int(output.shape[-1])
        rules.append(LabelRule(kind, name, key, classes, options.get("ignore_id")))
    return rules


def _losses(loss, y, outputs):
    """Yields key, loss and output of each label array, where the structures agree."""
    if y is None or loss is None:
        return
    if isinstance(y, dict):
        if isinstance(outputs, dict):
            for key in y.keys() & outputs.keys():
                each = loss.get(key) if isinstance(loss, dict) else loss
                if each is not None and keras.ops.is_tensor(outputs[key]):
                    yield key, each, outputs[key]
    elif isinstance(y, (list, tuple)):
        if isinstance(outputs, (list, tuple)) and len(outputs) == len(y):
            losses = loss if isinstance(loss, (list, tuple)) else [loss] * len(y)
            for key, (each, output) in enumerate(zip(losses, outputs, strict=False)):
                if each is not None and keras.ops.is_tensor(output):
                    yield key, each, output
    elif keras.ops.is_tensor(outputs) and not isinstance(loss, (dict, list, tuple)):
        yield None, loss, outputs


def _kind(loss):
    """The kind of a loss, None if it is no cross-entropy, and its options."""
    if isinstance(loss, MaskedCrossentropy):
        return "sparse", {"ignore_id": loss.ignore_id}
    if isinstance(loss, keras.losses.Loss):
        kinds = {
            keras.losses.SparseCategoricalCrossentropy: "sparse",
            keras.losses.CategoricalCrossentropy: "categorical",
            keras.losses.BinaryCrossentropy: "binary",
        }
        config = loss.get_config() if type(loss) in kinds else {}
        options = {"from_logits": config.get("from_logits"), "ignore_id": config.get("ignore_class")}
        return kinds.get(type(loss)), options
    names = {
        "sparse_categorical_crossentropy": "sparse",
        "categorical_crossentropy": "categorical",
        "binary_crossentropy": "binary",
    }
    return names.get(loss if isinstance(loss, str) else getattr(loss, "__name__", "")), {"from_logits": False}


def _check_is_probability(name, output):
    values = np.asarray(keras.ops.convert_to_numpy(keras.ops.cast(output, "float32")))
    wrong = (values < -_TOLERANCE) | (values > 1 + _TOLERANCE)
    if wrong.any():
        found, where = first_place(values, wrong)
        raise DataError(
            f"The loss of '{name}' expects probabilities, and the model's output is {found} at {where}: compile it with a "
            "loss of from_logits=True, or end the model with a softmax or sigmoid."
        )
