"""The export spec of a model that trains: signatures that take the state and return it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_transformer.export.data.array_spec import ArraySpec
from keras_transformer.export.data.export_spec import ExportSpec, Probe, Signature
from keras_transformer.export.errors import InvalidModelError
from keras_transformer.export.graph.operation_origin import locator
from keras_transformer.export.remedies import Remedy
from keras_transformer.export.runtime.precision import full_precision
from keras_transformer.export.spec import names
from keras_transformer.export.spec.functional import check_model, input_specs
from keras_transformer.export.spec.probes import fill_references
from keras_transformer.export.training.steps import LABELS, LOSS, TrainingSteps
from keras_transformer.utils.types import ArrayLike, Tensor, Tensors


class TrainingSpec:
    """The signatures `train` and `infer` of a model, whose state is passed to them, and what is known of the state.

    Args:
        model, batch, loss, optimizer: see `export_training`.

    Attributes:
        inputs: dict of arrays: those of the batch.
        labels: array.
        spec: `ExportSpec`.
        first_values: dict of the name of each variable to its first value.
        variable_names: dict of each input or output of the signatures that is state, to the name of its variable.

    Raises:
        InvalidModelError: see `export_training`.
    """

    def __init__(
        self,
        model: keras.Model,
        batch: tuple[Tensors, ArrayLike],
        loss: str | Callable[..., Tensor] | None,
        optimizer: str | keras.optimizers.Optimizer | None,
    ) -> None:
        self._model = check_model(model)
        self._loss = _loss(model, loss)
        self._steps = TrainingSteps(self._model, self._loss, _optimizer(model, optimizer))
        self._specs = input_specs(self._model, {})
        self.inputs, self.labels = _arrays(self._model, self._specs, batch)
        paths = _unique([each.path for each in self._steps.state])
        values = [keras.ops.convert_to_numpy(each) for each in self._steps.state]
        self.first_values = dict(zip(paths, values, strict=True))
        self._labels = [f"state_{index}" for index in range(len(paths))]
        self.variable_names = {**dict(zip(self._labels, paths, strict=True))}
        self.variable_names |= {f"next_{label}": path for label, path in self.variable_names.items()}
        self._values = dict(zip(self._labels, values, strict=True))
        train, self.infer = self._train(), self._infer()
        for signature in (train, self.infer):
            fill_references(signature)
        self.spec = self._spec({"train": train, "infer": self.infer})

    def without_state(self, items: Mapping[str, Any]) -> dict[str, Any]:
        """What belongs to the inputs or outputs of a signature that are no state, by their names."""
        return {name: item for name, item in items.items() if name not in self.variable_names}

    def losses(self, count: int) -> list[float]:
        """The losses of Keras in so many steps on the batch."""
        import tensorflow as tf

        step = tf.function(self._step, autograph=False)
        state, found = [tf.convert_to_tensor(value) for value in self._values.values()], []
        inputs = {name: tf.convert_to_tensor(array) for name, array in self.inputs.items()}
        with full_precision():
            for _ in range(count):
                loss, state = step(inputs, tf.convert_to_tensor(self.labels), state)
                found.append(float(loss))
        return found

    def record(self, signatures: Mapping[str, object]) -> dict[str, Any]:
        """The manifest's record of the training.

        Args:
            signatures: dict of those that are verified to their records without state.
        """
        specs = [_fixed(path, value).to_dict() for path, value in self.first_values.items()]
        count = ArraySpec("count", "int32", (), ()).to_dict()
        others = {"save": {"inputs": [], "outputs": specs}, "restore": {"inputs": specs, "outputs": [count]}}
        optimizer = self._steps.optimizer
        return {
            "signatures": {**signatures, **others},
            "weights": list(self.first_values)[: len(self._steps.weights)],
            "loss": self._loss.name,
            "optimizer": type(optimizer).__name__,
        }

    def _spec(self, signatures: dict[str, Signature]) -> ExportSpec:
        model = self._model
        # What trains is no weight of the graphs, but an input.
        trained = {id(each) for each in self._steps.weights}
        variables = tuple(each for each in model.variables if id(each) not in trained)
        return ExportSpec(signatures, None, locator(model), variables)

    def _packed(self, tensors: Mapping[str, Tensor]) -> Any:
        return keras.tree.pack_sequence_as(self._model.input, [tensors[each.name] for each in self._specs])

    def _step(
        self, inputs: Mapping[str, Tensor], labels: Tensor, state: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        return self._steps.train(self._packed(inputs), labels, state)

    def _train(self) -> Signature:
        arrays = {**self.inputs, LABELS: self.labels, **self._values}

        def train(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
            loss, state = self._step(tensors, tensors[LABELS], [tensors[label] for label in self._labels])
            return {LOSS: loss, **{f"next_{label}": value for label, value in zip(self._labels, state, strict=True)}}

        specs = tuple(_fixed(name, array) for name, array in arrays.items())
        return Signature(train, specs, [Probe(arrays, f"batch={len(self.labels)}")])

    def _infer(self) -> Signature:
        (output,) = names.output_names(self._model)
        labels = self._labels[: len(self._steps.weights)]
        weights = {label: self._values[label] for label in labels}

        def infer(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
            return {output: self._steps.infer(self._packed(tensors), [tensors[label] for label in labels])}

        first = {name: array[:1] for name, array in self.inputs.items()}
        probes = [
            Probe({**part, **weights}, f"batch={len(next(iter(part.values())))}") for part in (first, self.inputs)
        ]
        specs = (*self._specs, *(_fixed(label, value) for label, value in weights.items()))
        return Signature(infer, specs, probes)


def _fixed(name: str, array: np.ndarray) -> ArraySpec:
    return ArraySpec(name, array.dtype.name, array.shape, (None,) * array.ndim)


def _arrays(model: keras.Model, specs: Sequence[ArraySpec], batch: object) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The batch as arrays by input name, and its labels."""
    if LABELS in {each.name for each in specs}:
        raise InvalidModelError(
            f"an input of the model is named '{LABELS}', as that of the signature", Remedy.LABELS, name=LABELS
        )
    if not isinstance(batch, (tuple, list)) or len(batch) != 2:
        raise InvalidModelError("batch must be a pair (x, y), as fit takes it")
    x, y = batch
    given = x if isinstance(x, Mapping) else dict(zip([each.name for each in specs], _listed(x), strict=False))
    if given.keys() != {each.name for each in specs}:
        raise InvalidModelError(f"x has {sorted(given)}; the inputs of the model are {[each.name for each in specs]}")
    arrays = {each.name: np.asarray(given[each.name]).astype(each.dtype) for each in specs}
    labels = np.asarray(y)
    kinds = {"i": "int32", "u": "int32", "b": "int32", "f": "float32"}
    if labels.dtype.kind not in kinds:
        raise InvalidModelError(f"y must be numbers. Received: {labels.dtype}")
    if labels.ndim == 0 or any(len(array) != len(labels) for array in arrays.values()):
        raise InvalidModelError("x and y have different numbers of examples")
    return arrays, labels.astype(kinds[labels.dtype.kind])


def _listed(x: object) -> list[object]:
    return list(x) if isinstance(x, (list, tuple)) else [x]


class _FunctionLoss(keras.losses.Loss):
    """The mean of a function of labels and outputs, as `compile` makes it of a name."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__(name=getattr(function, "__name__", "loss"))
        self._function = function

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        if len(y_true.shape) == len(y_pred.shape) - 1 and y_pred.shape[-1] == 1:
            y_pred = keras.ops.squeeze(y_pred, -1)
        return self._function(y_true, y_pred)


def _loss(model: keras.Model, loss: str | Callable[..., Tensor] | None) -> keras.losses.Loss:
    found = keras.losses.get(_given(loss, getattr(model, "loss", None), "loss", model))
    return found if isinstance(found, keras.losses.Loss) else _FunctionLoss(found)


def _optimizer(model: keras.Model, optimizer: str | keras.optimizers.Optimizer | None) -> keras.optimizers.Optimizer:
    found = keras.optimizers.get(_given(optimizer, getattr(model, "optimizer", None), "optimizer", model))
    if found.gradient_accumulation_steps:
        raise InvalidModelError("an optimizer with gradient_accumulation_steps does not train on the device")
    return found


def _given(value: object, compiled: object, what: str, model: keras.Model) -> object:
    found = compiled if value is None else value
    if found is None:
        raise InvalidModelError(f"model '{model.name}' has no {what}", Remedy.COMPILE, what=what)
    return found


def _unique(paths: Sequence[str]) -> list[str]:
    taken: dict[str, int] = {}
    found = []
    for path in paths:
        taken[path] = taken.get(path, 0) + 1
        found.append(path if taken[path] == 1 else f"{path}~{taken[path]}")
    return found
