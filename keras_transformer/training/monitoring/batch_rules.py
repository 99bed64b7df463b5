"""What a model and its loss require of a batch."""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections.abc import Callable

import keras
import numpy as np

from keras_transformer.backend import keras_private
from keras_transformer.training.errors import DataError
from keras_transformer.training.monitoring.label_rules import LabelRule, label_rules
from keras_transformer.training.monitoring.names import first_place, named_leaves, path_in
from keras_transformer.utils.types import Tensor, Tensors

# Layers that make the values of images small; a model with any of them may expect 0 .. 255.
_RESCALES = (keras.layers.Rescaling, keras.layers.Normalization, keras.layers.BatchNormalization)


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """The ids that an embedding has vectors for.

    Attributes:
        size: int. Valid ids are 0 to `size - 1`.
        layer: str. Path of the embedding.
    """

    size: int
    layer: str


class BatchRules:
    """What a model and its loss require of a batch, found by calling the model on a first one.

    The model is called in inference, with ids out of range replaced by valid ones, and without compilation.

    Args:
        model: a compiled, built `keras.Model`.
        batch: `(x, y, sample_weight)`.
        value: function from a variable to its value, or None for the variable's own.

    Attributes:
        vocabularies: dict of the name of an input to its `Vocabulary`.
        labels: list of `LabelRule`, one for each label array whose loss is known.
    """

    def __init__(
        self,
        model: keras.Model,
        batch: tuple[Tensors, Tensors | None, Tensors | None],
        value: Callable[[keras.Variable], Tensor] | None = None,
    ) -> None:
        self.model = model
        x, y, _ = batch
        looked_up: list[tuple[keras.layers.Layer, np.ndarray]] = []
        outputs = _outputs(model, x, looked_up, value)
        leaves = named_leaves(x)
        self.vocabularies: dict[str, Vocabulary] = {}
        for layer, ids in looked_up:
            name = next((name for name, leaf in leaves if _is_same(leaf, ids)), None)
            if name is not None:
                self.vocabularies[name] = Vocabulary(layer.input_dim, path_in(layer, model))
        self.labels: list[LabelRule] = label_rules(model, y, outputs)
        self._integers = _integer_inputs(model)
        self._rescales = any(isinstance(layer, _RESCALES) for layer in keras_private.flatten_layers(model))

    def check(self, batch: tuple[Tensors, Tensors | None, Tensors | None], name: str = "The batch") -> None:
        """Raises an error if the model cannot be trained on a batch.

        Args:
            batch: `(x, y, sample_weight)`.
            name: str. The subject of the message.

        Raises:
            DataError: the message names the array, the place in it, its value, and the valid range.

        Warns:
            UserWarning: images are integers from 0 to 255, and the model has no layer that rescales them.
        """
        x, y, sample_weight = batch
        inputs = named_leaves(x)
        for key, value in named_leaves(x, y, sample_weight):
            _check_finite(name, key, value)
        for key, value in inputs:
            if key in self._integers:
                _check_integers(name, key, value)
            if key in self.vocabularies:
                _check_ids(name, key, value, self.vocabularies[key])
            if not self._rescales:
                _warn_of_bytes(name, key, value)
        counted = [rule.check(name, y, sample_weight) for rule in self.labels]
        mask = dict(inputs).get("padding_mask")
        if mask is not None and mask.ndim == 2:
            _check_padding(name, mask.astype(bool), counted)


def _outputs(model, x, looked_up, value):
    """The outputs of a model for a batch; appends what its embeddings look up."""

    def wrap(layer, call):
        def watched(inputs, *args, **kwargs):
            if kwargs.get("reverse") or (args and args[0] is True):
                return call(inputs, *args, **kwargs)
            looked_up.append((layer, keras.ops.convert_to_numpy(inputs)))
            return call(keras.ops.clip(inputs, 0, layer.input_dim - 1), *args, **kwargs)

        return watched

    embeddings = [each for each in keras_private.flatten_layers(model) if isinstance(each, keras.layers.Embedding)]
    # On JAX the variables have no values during training.
    scope = (
        keras.StatelessScope([(each, value(each)) for each in model.variables]) if value else contextlib.nullcontext()
    )
    options = {"training": False} if keras_private.takes_training(model) else {}
    with scope, keras_private.wrapped_calls(embeddings, wrap):
        return model(x, **options)


def _is_same(leaf, ids):
    return leaf.shape == ids.shape and np.array_equal(leaf, ids)


def _integer_inputs(model):
    """The names of the inputs of a functional model that it takes as integers."""
    if not keras_private.is_graph(keras_private.functional(model)):
        return frozenset()
    return frozenset(each.name for each in model.inputs if "int" in keras.backend.standardize_dtype(each.dtype))


def _check_finite(name, key, value):
    if np.issubdtype(value.dtype, np.floating) and not np.isfinite(value).all():
        found, where = first_place(value, ~np.isfinite(value))
        raise DataError(f"{name}: '{key}' is {found} at {where}; it must be finite.")


def _check_integers(name, key, value):
    if np.issubdtype(value.dtype, np.floating) and (value != np.floor(value)).any():
        found, where = first_place(value, value != np.floor(value))
        raise DataError(f"{name}: '{key}' is {found} at {where}; it must be an integer. Its dtype is {value.dtype}.")


def _check_ids(name, key, value, vocabulary):
    wrong = (value < 0) | (value >= vocabulary.size)
    if wrong.any():
        found, where = first_place(value, wrong)
        raise DataError(
            f"{name}: '{key}' is {found} at {where}; the ids of '{vocabulary.layer}' are 0 to {vocabulary.size - 1}."
        )


def _warn_of_bytes(name, key, value):
    if value.ndim != 4 or value.shape[-1] not in (1, 3) or value.size == 0 or value.dtype.kind not in "iuf":
        return
    if value.min() >= 0 and 16 < value.max() <= 255 and (value == np.floor(value)).all():
        warnings.warn(
            f"{name}: '{key}' has integers from {value.min():g} to {value.max():g}, and the model has no layer that "
            "rescales images: divide them by 255.",
            stacklevel=2,
        )


def _check_padding(name, mask, counted):
    """Refuses rows without a token, unless they have no label that counts."""
    empty = ~mask.any(axis=1)
    for rows in counted:
        if rows is not None and len(rows) == len(empty):
            empty &= rows
    if empty.any():
        row = int(np.argmax(empty))
        raise DataError(
            f"{name}: row {row} of 'padding_mask' is all padding; a row with a label must have at least one token."
        )
