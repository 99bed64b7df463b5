"""`call_with_cache` of a task of KerasHub, in which the rows of a batch may stand at different positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import keras
import tensorflow as tf

from keras_transformer.attention.partition.bands import take_rows
from keras_transformer.backend.layer_order import layers_in_order
from keras_transformer.export.data.array_spec import ArraySpec
from keras_transformer.export.data.export_spec import Signature
from keras_transformer.export.errors import ExportError, InvalidModelError
from keras_transformer.export.graph.per_row.batch_axes import batch_axes
from keras_transformer.export.graph.per_row.evaluation import Evaluation
from keras_transformer.export.graph.per_row.values import PerRow, Stacked, Value, plain
from keras_transformer.export.graph.repeated_layers import RepeatedLayers
from keras_transformer.export.graph.replaced_layers import replaced
from keras_transformer.export.graph.traced_graph import TracedGraph, concrete_function, graph_of, weight_labels
from keras_transformer.export.operations.layers import AS_IN_PREDICT, EVERYWHERE
from keras_transformer.export.remedies import Remedy
from keras_transformer.export.spec.keras_hub.cache_layout import CALL, CacheLayout
from keras_transformer.utils.errors import library_exceptions, one_line
from keras_transformer.utils.types import Cache, Tensor

_TOKENS, _INDEX = "token_ids", "cache_index"
# The shapes of the tokens and of the tensors of the cache.
_Key: TypeAlias = "tuple[tuple[int | None, ...], tuple[tuple[int | None, ...], ...]]"
# A graph, and the axes of rows of its tensors.
_Trace: TypeAlias = "tuple[TracedGraph, dict[str, int]]"
# Tokens and slots with which the axes of rows are looked for.
_NEW, _SLOTS = 3, 11


class CachedCall:
    """A step of a task as a function of named tensors.

    KerasHub takes one position for all rows. Here each row has its own: the step is traced for one, and what depends on
    it is computed for the position of each row, see `graph.per_row`. In a call for one row nothing changes.

    Args:
        task: task of KerasHub with `call_with_cache`.

    Attributes:
        layout: `CacheLayout`.

    Raises:
        InvalidModelError: the step cannot be traced for texts of any length.
    """

    def __init__(self, task: keras.Model) -> None:
        self._task = task
        self._parts = layers_in_order(task)
        self._variables = dict(zip(weight_labels(task.variables), task.variables, strict=True))
        self._traces: dict[_Key, _Trace] = {}
        self.layout = CacheLayout(task)
        graph, _ = self._traced((None, None), [each.spec("").shape for each in self.layout.leaves])
        self.layout.set_parts(graph, self._leaf_names)

    @property
    def _leaf_names(self) -> list[str]:
        return [f"cache_{number}" for number in range(len(self.layout.leaves))]

    def __call__(
        self, token_ids: Tensor, cache: Cache, index: Tensor, lengths: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Cache]:
        """Reads tokens, in the graph that is being traced.

        Args:
            token_ids: int32 `(B, T)`.
            cache: dict of named tensors.
            index: int32 `()` or `(B,)`: the position of the first token.
            lengths: int32 `(B,)`: the logits are those after so many tokens of each row; None for those after each.

        Returns:
            `(logits, hidden_states, cache)`.
        """
        leaves = self.layout.leaf_values(cache)
        graph, axes = self._traced(tuple(token_ids.shape), [_shape_of(each) for each in leaves])
        given: dict[str, Value] = {_TOKENS: token_ids, _INDEX: _position(index, token_ids)}
        given |= zip(self._leaf_names, leaves, strict=True)
        evaluation = self._evaluation(graph, axes, given)
        hidden = plain(evaluation.value(graph.outputs["hidden_states"]))
        after = [evaluation.value(graph.outputs[name]) for name in self._leaf_names]
        if lengths is None:
            return plain(evaluation.value(graph.outputs["logits"])), hidden, self.layout.named(after)
        last = take_rows(hidden, lengths - 1, 1)
        logits = self._head(given, token_ids.shape[0], last)
        if logits is None:
            logits = take_rows(plain(evaluation.value(graph.outputs["logits"])), lengths - 1, 1)
        return logits, hidden, self.layout.named(after)

    def _head(self, given: dict[str, Value], rows: int | None, last: Tensor) -> Tensor | None:
        """The logits after the last token of each row, which the head then reads alone; None where it reads more."""
        shapes = [_shape_of(given[name]) for name in self._leaf_names]
        graph, axes = self._traced((rows, 1), shapes)
        evaluation = self._evaluation(graph, axes, given)
        source = evaluation.source(graph.outputs["hidden_states"])
        evaluation.replace(source, last)
        name = graph.outputs["logits"]
        return plain(evaluation.value(name)) if evaluation.reads_only(name, source) else None

    def _evaluation(self, graph: TracedGraph, axes: dict[str, int], inputs: dict[str, Value]) -> Evaluation:
        """The evaluation of a graph of the step on inputs, with the weights of the task."""
        outer = tf.compat.v1.get_default_graph()
        weights = {name: tf.convert_to_tensor(self._variables[name]) for name in graph.weights}
        captures = {name: outer.capture(each) for name, each in graph.captures.items()}
        return Evaluation(graph, {**inputs, **weights, **captures}, axes)

    def _traced(self, tokens: Sequence[int | None], leaves: Sequence[Sequence[int | None]]) -> _Trace:
        """The graph of the step for these shapes, and the axes of rows of its tensors."""
        key = (tuple(tokens), tuple(map(tuple, leaves)))
        if key not in self._traces:
            with tf.init_scope():
                self._traces[key] = self._trace(*key)
        return self._traces[key]

    def _trace(self, tokens: tuple[int | None, ...], leaves: tuple[tuple[int | None, ...], ...]) -> _Trace:
        shapes: list[tuple[str, str, tuple[int | None, ...]]] = [(_TOKENS, "int32", tokens), (_INDEX, "int32", ())]
        dtypes = (leaf.dtype for leaf in self.layout.leaves)
        shapes += zip(self._leaf_names, dtypes, leaves, strict=True)
        inputs = tuple(ArraySpec(name, dtype, shape, (None,) * len(shape)) for name, dtype, shape in shapes)
        signature = Signature(self._own_step, inputs, [])
        try:
            with replaced(self._parts, (*AS_IN_PREDICT, *EVERYWHERE)):
                function = concrete_function(CALL, signature, list(self._task.variables), RepeatedLayers(()))
        except ExportError:
            raise
        except library_exceptions() as error:
            raise InvalidModelError(
                f"{CALL} of '{self._task.name}' ({type(self._task).__name__}) is no graph for texts of any length:"
                f" {one_line(error)}",
                Remedy.UNCACHED,
            ) from error
        graph = graph_of(function)
        if tokens[0] is not None:
            return graph, {}
        specs = {each.name: tf.TensorSpec(each.shape, each.dtype) for each in inputs}
        sizes = {_TOKENS: _NEW, **dict.fromkeys(self._leaf_names, _SLOTS)}
        return graph, batch_axes(graph, self._variables, specs, sizes)

    def _own_step(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """The step of the task, as KerasHub has it."""
        cache = self.layout.packed([tensors[name] for name in self._leaf_names])
        logits, hidden, after = getattr(self._task, CALL)(tensors[_TOKENS], cache, tensors[_INDEX])
        found = dict(zip(self._leaf_names, keras.tree.flatten(after), strict=True))
        return {"logits": logits, "hidden_states": hidden, **found}

    def of_row(self, token_ids: Tensor, cache: Cache, index: int) -> tuple[Tensor, Tensor, Cache]:
        """The step of the task on one row, called in Keras: what files are compared with.

        Args:
            token_ids: int32 `(1, T)`.
            cache: dict of named tensors of one row.
            index: the position of the first token.
        """
        leaves = [plain(each) for each in self.layout.leaf_values(cache)]
        logits, hidden, after = getattr(self._task, CALL)(token_ids, self.layout.packed(leaves), index)
        return logits, hidden, self.layout.named(keras.tree.flatten(after))


def _position(index: Tensor, token_ids: Tensor) -> Value:
    """The position of the first token: one for all rows, or one of each."""
    if index.shape.rank == 0:
        return index
    return index[0] if token_ids.shape[0] == 1 else PerRow(index)


def _shape_of(value: Value) -> tuple[int | None, ...]:
    """The static shape of a tensor, or of a stack."""
    if isinstance(value, Stacked):
        first = _shape_of(value.parts[0])
        return (first[0], len(value.parts), *first[1:])
    return tuple(plain(value).shape)
