"""Graphs of a training step and of a decoding step, traced without running them."""

from __future__ import annotations

from typing import NamedTuple

import keras
import tensorflow as tf

from keras_transformer.planning.errors import PlanningError
from keras_transformer.tasks import LanguageModel
from keras_transformer.training.losses.cross_entropy import cross_entropy
from keras_transformer.training.losses.labeled_loss import labeled_loss
from keras_transformer.utils.types import Tensors


class StepGraph(NamedTuple):
    """A traced step.

    Attributes:
        graph: `FuncGraph`.
        boundary: int, or None. The index of the operation with which the backward pass begins.
    """

    graph: tf.Graph
    boundary: int | None = None


def training_graph(model: keras.Model, batch_size: int, length: int, loss_chunk: int | None = None) -> StepGraph:
    """Traces the forward and backward pass of a batch.

    Args:
        model: `keras.Model`, whose weights need no values.
        batch_size: int.
        length: int. The size of every unknown axis of the inputs.
        loss_chunk: int, or None. The number of tokens whose logits are computed at a time, as by
            `training.NextTokenTrainer`; None for those of the whole batch.

    Raises:
        PlanningError: `loss_chunk` for a model that has no decoder and head.
    """
    if loss_chunk and (not isinstance(model, LanguageModel) or model.is_encoder_decoder):
        raise PlanningError(f"loss_chunk is for language models with a decoder only; {model.name!r} is none")
    weights, others, inputs = _specs(model, batch_size, length)
    boundaries = []

    def step(weights, others, inputs):
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(weights)
            if loss_chunk:
                loss = _chunked_loss(model, weights, others, inputs, loss_chunk)
            else:
                outputs, _, losses = model.stateless_call(weights, others, inputs, training=True, return_losses=True)
                loss = tf.add_n([*map(_loss, keras.tree.flatten(outputs)), *map(tf.reduce_sum, losses)])
        boundaries.append(len(loss.graph.get_operations()))
        gradients = tape.gradient(loss, weights)
        return loss, [tf.convert_to_tensor(gradient) for gradient in gradients if gradient is not None]

    graph = tf.function(step, autograph=False).get_concrete_function(weights, others, inputs).graph
    return StepGraph(graph, boundaries[-1])


class DecodingStep:
    """The step that decodes one new token for each row of a `tasks.LanguageModel`.

    Args:
        model: `tasks.LanguageModel`.
        batch_size: int.
        context: int. The number of tokens in the cache.
    """

    def __init__(self, model: LanguageModel, batch_size: int, context: int) -> None:
        self._model = model
        self._stepwise = model.stepwise
        self._batch_size = batch_size
        dtype = keras.backend.standardize_dtype(model.compute_dtype)
        self._cache = _cache_specs(model, batch_size, context, dtype)

    @property
    def cache_bytes(self) -> int:
        """int: bytes of the cache."""
        return sum(tf.TensorShape(spec.shape).num_elements() * spec.dtype.size for spec in self._cache.values())

    def graph(self) -> StepGraph:
        """Traces the step."""
        model = self._model
        weights = [tf.TensorSpec(variable.shape, variable.dtype) for variable in model.variables]

        def step(weights, cache, token_ids, index):
            with keras.StatelessScope(list(zip(model.variables, weights, strict=True)), initialize_variables=False):
                hidden, cache = self._stepwise(token_ids, cache, index)
                return model._to_logits(hidden), cache

        token = tf.TensorSpec((self._batch_size, 1), "int32")
        index = tf.TensorSpec((self._batch_size,), "int32")
        traced = tf.function(step, autograph=False).get_concrete_function(weights, self._cache, token, index)
        return StepGraph(traced.graph)


def _cache_specs(model: LanguageModel, batch_size: int, context: int, dtype: str) -> dict[str, tf.TensorSpec]:
    found: dict[str, tf.TensorSpec] = {}

    @tf.function(autograph=False)
    def make():
        with keras.StatelessScope(initialize_variables=False):
            cache = model.stepwise.init_cache(batch_size, context, dtype)
        found.update({name: tf.TensorSpec(tensor.shape, tensor.dtype) for name, tensor in cache.items()})
        return tf.constant(0)

    make.get_concrete_function()
    return found


def _specs(
    model: keras.Model, batch_size: int, length: int
) -> tuple[list[tf.TensorSpec], list[tf.TensorSpec], Tensors]:
    inputs = keras.tree.map_structure(
        lambda tensor: tf.TensorSpec((batch_size, *(side or length for side in tensor.shape[1:])), tensor.dtype),
        model.input,
    )
    return (
        [tf.TensorSpec(variable.shape, variable.dtype) for variable in model.trainable_variables],
        [tf.TensorSpec(variable.shape, variable.dtype) for variable in model.non_trainable_variables],
        inputs,
    )


def _chunked_loss(
    model: LanguageModel, weights: list[tf.Tensor], others: list[tf.Tensor], inputs: Tensors, chunk: int
) -> tf.Tensor:
    """Returns the loss of `training.NextTokenTrainer` on rows of which every token has a label."""
    variables = [*model.trainable_variables, *model.non_trainable_variables]
    with keras.StatelessScope(list(zip(variables, [*weights, *others], strict=True)), collect_losses=True) as scope:
        hidden = model.backbone(inputs, training=True)
        hidden = tf.reshape(hidden, (-1, hidden.shape[-1]))
        labels, counted = tf.zeros(hidden.shape[:1], "int32"), tf.ones(hidden.shape[:1])
        total = labeled_loss(model, hidden, labels, counted, chunk)
    return tf.add_n([total / hidden.shape[0], *map(tf.reduce_sum, scope.losses)])


def _loss(output: tf.Tensor) -> tf.Tensor:
    """Returns the mean cross-entropy over the last axis, as of logits."""
    output = tf.cast(output, "float32")
    return tf.reduce_mean(cross_entropy(tf.zeros(output.shape[:-1], "int32"), output))
