"""Distillation: a student that learns from a teacher, in `fit`."""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from keras_transformer.attention.capture import capture
from keras_transformer.attention.maps import attention_maps
from keras_transformer.backend import keras_private
from keras_transformer.blocks.traced_once import TracedOnce
from keras_transformer.training.compression.distillation_losses import AttentionMaps, HiddenStates, SoftLogits
from keras_transformer.utils.types import Outputs, Shape, Tensor, Tensors

_DEFAULT_LOGITS = SoftLogits()


class Distillation(TracedOnce, keras.Model):
    """Trains a student with the losses of a teacher beside its own.

    The student is ready for use after training: it is changed in place, and has nothing of the teacher. The teacher is not
    changed, and is not part of the weights of this model. `evaluate` and `predict` are those of the student.

    Args:
        student: `keras.Model`, Functional; it may be one of `quantization_aware`.
        teacher: `keras.Model` with the same inputs, Functional.
        logits: `SoftLogits`, or None. Default `SoftLogits()`.
        hidden_states: `HiddenStates`, or None. Default None.
        attention_maps: `AttentionMaps`, or None. Default None.
        label_weight: float >= 0. Factor of the loss given to `compile`, which may be None. Default 1.
        name: str.

    Call arguments:
        inputs: the inputs of the student.

    Returns:
        The output of the student; in training, a dict with that as "output", and what the losses need.

    Raises:
        ValueError: no loss is left; the student is the teacher; outputs of different shapes, or that are probabilities; a
            layer that does not exist; a negative weight.

    Widths and numbers of heads may differ; the learned maps between widths are weights of this model alone. Rows of
    `sample_weight` weigh the loss of the labels only.

    Example:

    >>> from keras_transformer import models, tasks
    >>> def classifier(num_layers, width):
    ...     encoder = models.Encoder(models.Size(num_layers, width, 2, 16), vocabulary_size=50)
    ...     return tasks.SequenceClassifier(encoder, num_classes=3, activation=None)
    >>> pairs = {"encoder_block_0": "encoder_block_1"}
    >>> trainer = Distillation(classifier(1, 8), classifier(2, 16), hidden_states=HiddenStates(pairs))
    >>> trainer.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    >>> [weight.path for weight in trainer.trainable_weights][-1]
    'hidden_states_0/kernel'

    Reference: Hinton et al., arXiv 1503.02531, section 2; and those of the losses.
    """

    def __init__(
        self,
        student: keras.Model,
        teacher: keras.Model,
        *,
        logits: SoftLogits | None = _DEFAULT_LOGITS,
        hidden_states: HiddenStates | None = None,
        attention_maps: AttentionMaps | None = None,
        label_weight: float = 1.0,
        name: str = "distillation",
    ) -> None:
        super().__init__(name=name)
        if label_weight < 0:
            raise ValueError(f"label_weight must not be negative. Received: {label_weight!r}")
        if not (logits or hidden_states or attention_maps):
            raise ValueError("Distillation needs logits, hidden_states or attention_maps")
        if student is teacher:
            raise ValueError(f"{student.name!r} cannot be its own teacher")
        if logits:
            _check_outputs(student, teacher)
        self.student = student
        self.label_weight = label_weight
        self._losses_of_parts = {"logits": logits, "hidden_states": hidden_states, "attention_maps": attention_maps}
        pairs = [_pairs(part) for part in (hidden_states, attention_maps)]
        self._probes = [
            _Probe(model, *([pair[side] for pair in each] for each in pairs))
            for side, model in enumerate((student, teacher))
        ]
        self._maps = self._make_maps(self._probes)

    def _make_maps(self, probes):
        """For each pair of hidden states a layer from the width of the student to that of the teacher, or None."""
        maps = []
        for index, (ours, theirs) in enumerate(zip(*(probe.widths for probe in probes), strict=True)):
            if ours == theirs:
                maps.append(None)
                continue
            maps.append(keras.layers.Dense(theirs, use_bias=False, dtype="float32", name=f"hidden_states_{index}"))
            maps[-1].build((None, ours))
        return maps

    def build(self, input_shape: Shape) -> None:
        """Does nothing: the parts are built."""

    def call(self, inputs: Tensors, training: bool | None = None) -> Outputs | dict[str, object]:
        if not training:
            return self.student(inputs, training=False)
        return self._probes[0](inputs, training=True)

    def compute_loss(
        self,
        x: Any = None,
        y: Tensor | None = None,
        y_pred: Any = None,
        sample_weight: Tensor | None = None,
        training: bool = True,
    ) -> Tensor:
        """Returns the loss of the labels; in training, plus those of the teacher."""
        if not training:
            return super().compute_loss(x, y, y_pred, sample_weight, training)
        teacher = keras.tree.map_structure(ops.stop_gradient, self._probes[1](x, training=False))
        total = functools.reduce(operator.add, self._part_losses(x, y_pred, teacher))
        if self.label_weight and self.loss is not None:
            return total + self.label_weight * super().compute_loss(x, y, y_pred["output"], sample_weight, training)
        losses: list[Tensor] = self.losses
        return total + sum(losses) if losses else total

    def _part_losses(self, x, student, teacher):
        parts = self._losses_of_parts
        if parts["logits"]:
            yield parts["logits"].loss(student["output"], teacher["output"], _mask(x, parts["logits"]))
        for name in ("hidden_states", "attention_maps"):
            for index, (ours, theirs) in enumerate(zip(student[name], teacher[name], strict=True)):
                mapping = self._maps[index] if name == "hidden_states" else None
                ours = ours if mapping is None else mapping(ours)
                yield parts[name].loss(ours, theirs, _mask(x, parts[name])) / len(student[name])

    def compute_metrics(
        self, x: Tensors, y: Tensor, y_pred: Tensor | Mapping[str, Tensor], sample_weight: Tensor | None = None
    ) -> dict[str, object]:
        """Updates the metrics with the output of the student."""
        is_training = isinstance(y_pred, Mapping) and set(y_pred) == {"output", "hidden_states", "attention_maps"}
        return super().compute_metrics(x, y, y_pred["output"] if is_training else y_pred, sample_weight)


class _Probe:
    """A model that also returns hidden states and attention maps. No Keras object, which would track the teacher."""

    def __init__(self, model: keras.Model, hidden: list[str], attention: list[str]) -> None:
        outputs = [_output_of(model, name) for name in hidden]
        self.widths = [output.shape[-1] for output in outputs]
        self._model = model
        graph = keras_private.functional(model)
        self._tapped = keras.Model(graph.input, [graph.output, *outputs], name=model.name) if outputs else None
        self._attention = [_attention_layer(model, name) for name in attention]

    def __call__(self, inputs: Tensors, training: bool) -> dict[str, object]:
        with capture(self._attention) as scores:
            if self._tapped is None:
                output, hidden = self._model(inputs, training=training), []
            else:
                output, *hidden = self._tapped(inputs, training=training)
        maps = [scores[id(layer)] for layer in self._attention]
        return {"output": output, "hidden_states": hidden, "attention_maps": maps}


def _pairs(part):
    return [] if part is None else list(part.layers.items())


def _output_of(model, name):
    layers = {layer.name: layer for layer in model.layers}
    if name not in layers:
        raise ValueError(f"{model.name!r} has no layer {name!r}. Its layers: {', '.join(layers)}")
    return layers[name].output


def _attention_layer(model, name):
    chosen = list(attention_maps(model, [name]).chosen.values())
    if len(chosen) > 1:
        paths = ", ".join(layer.path for layer in chosen)
        raise ValueError(f"{name!r} of {model.name!r} contains several attention layers: {paths}. Name one of these.")
    return chosen[0]


def _mask(x, part):
    return x.get(part.mask) if isinstance(x, Mapping) else None


def _check_outputs(student, teacher):
    outputs = [keras_private.functional(model).output for model in (student, teacher)]
    for model, output in zip((student, teacher), outputs, strict=True):
        if not isinstance(output, keras.KerasTensor):
            raise ValueError(f"{model.name!r} must have one output, of logits")
        activation = getattr(model.layers[-1], "activation", None)
        if activation in (keras.activations.softmax, keras.activations.sigmoid):
            raise ValueError(f"{model.name!r} returns probabilities: SoftLogits needs logits (activation=None)")
    ours, theirs = (tuple(output.shape[1:]) for output in outputs)
    if len(ours) != len(theirs) or ours[-1] != theirs[-1]:
        raise ValueError(f"The outputs of the student have the shape {ours}, those of the teacher {theirs}")
