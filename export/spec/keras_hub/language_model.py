"""A `CausalLM` of KerasHub with the steps of a language model of this package, for its export."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from keras_transformer.backend import keras_private
from keras_transformer.export.spec.keras_hub.cached_call import CachedCall
from keras_transformer.export.spec.keras_hub.task import HubTexts, is_causal_lm, texts_of
from keras_transformer.generation import GenerationSpec, Generator
from keras_transformer.generation.decoding_request import ModelOutput
from keras_transformer.utils.types import ArrayLike, Cache, Shape, Tensor

if TYPE_CHECKING:
    from keras_transformer.generation.prompts import PromptsLike
    from keras_transformer.text import Tokenizer

_INPUTS = {"token_ids", "padding_mask"}
_FLOAT = "float32"


class HubLanguageModel:
    """What the export of a language model asks of it, by `call_with_cache` of a task of KerasHub.

    Args:
        task: `CausalLM` of KerasHub.
        texts: `HubTexts`: its tokenizer, and the tokens that begin and end texts.

    Attributes:
        task: the task.
        own: the same steps, each row by itself and as KerasHub computes them: the reference of files.

    Raises:
        InvalidModelError: its steps are no graph, or mix the rows of a batch.
    """

    is_encoder_decoder = False
    takes_prompts = True
    source_names: tuple[str, ...] = ()
    source_shape: Shape | None = None
    cache_is_rewindable = True
    has_prefill_exit = False
    stepwise = types.SimpleNamespace(target_layers=())

    def __init__(self, task: keras.Model, texts: HubTexts) -> None:
        self.task, self.texts = task, texts
        self._call = CachedCall(task)
        self.name, self.inputs, self.variables = task.name, task.inputs, task.variables
        self.tokenizer, self.start_id, self.end_id = texts.tokenizer, texts.start_id, texts.end_id
        self.vocabulary_size = int(task.output.shape[-1])
        self.max_length = _longest(task)
        self._compiled: dict[tuple[tuple[str, int], ...], Callable[..., tuple[Tensor, Tensor, Cache]]] = {}
        self.own = _RowByRow(self)

    @property
    def generation_spec(self) -> GenerationSpec:
        """`GenerationSpec`: how the model generates."""
        return GenerationSpec(self.vocabulary_size, self.max_length, start_id=self.start_id, end_id=self.end_id)

    def __call__(self, inputs: Mapping[str, ArrayLike], training: bool = False) -> Tensor:
        """The logits of whole texts; of a model that also takes images, for a text without any."""
        if {tensor.name for tensor in self.inputs} <= _INPUTS:
            return self.task(inputs, training=training)
        rows, length = np.shape(inputs["token_ids"])
        return self.own.decode_step(inputs["token_ids"], self.init_cache(rows, length), np.zeros(rows, "int32"))[0]

    def init_cache(self, batch_size: int | Tensor, max_length: int | Tensor, dtype: object = None) -> Cache:
        """Returns an empty cache for `max_length` tokens: dict of named tensors, batch first."""
        return self._call.layout.empty(batch_size, max_length)

    def prefill(self, token_ids: Tensor, lengths: Tensor, cache: Cache) -> tuple[Tensor, Tensor, Cache]:
        """Reads prompts into an empty cache: see `tasks.LanguageModel.prefill`."""
        return self.extend(token_ids, lengths, cache, ops.zeros((), "int32"))

    def extend(
        self, token_ids: Tensor, lengths: Tensor, cache: Cache, cache_index: Tensor
    ) -> tuple[Tensor, Tensor, Cache]:
        """Reads the next tokens of each prompt: see `tasks.LanguageModel.extend`."""
        return self._run(token_ids, cache, cache_index, lengths)

    def decode_step(self, token_ids: Tensor, cache: Cache, cache_index: Tensor) -> tuple[Tensor, Tensor, Cache]:
        """Reads new tokens: see `tasks.LanguageModel.decode_step`."""
        return self._run(token_ids, cache, cache_index, None)

    def generate(self, prompts: PromptsLike, max_new_tokens: int | None = None) -> object:
        """Generates text after prompts, greedily; see `generation.Generator.generate`."""
        return Generator(_Steps(self), self.tokenizer).generate(prompts, max_new_tokens=max_new_tokens)

    def row(self, token_ids: Tensor, cache: Cache, index: int) -> tuple[Tensor, Tensor, Cache]:
        """A step of one row as KerasHub computes it; see `CachedCall.of_row`."""
        return self._call.of_row(token_ids, cache, index)

    def _run(
        self, token_ids: Tensor, cache: Cache, cache_index: Tensor, lengths: Tensor | None
    ) -> tuple[Tensor, Tensor, Cache]:
        if not tf.executing_eagerly():
            return self._in_graph(token_ids, cache, cache_index, lengths)
        given = {
            "token_ids": token_ids,
            "cache_index": cache_index,
            **({} if lengths is None else {"lengths": lengths}),
        }
        tensors = {name: tf.cast(each, "int32") for name, each in given.items()}
        key = tuple((name, each.shape.rank) for name, each in tensors.items())
        if key not in self._compiled:
            ranks = {name: tf.TensorSpec([None] * each.shape.rank, each.dtype) for name, each in tensors.items()}
            specs = {each.name: tf.TensorSpec(each.shape, each.dtype) for each in self._call.layout.specs()}

            def called(tensors: dict[str, Tensor], cache: Cache) -> tuple[Tensor, Tensor, Cache]:
                return self._in_graph(tensors["token_ids"], cache, tensors["cache_index"], tensors.get("lengths"))

            self._compiled[key] = tf.function(called, input_signature=[ranks, specs], autograph=False)
        names = [each.name for each in self._call.layout.specs()]
        return self._compiled[key](tensors, {name: tf.convert_to_tensor(cache[name]) for name in names})

    def _in_graph(
        self, token_ids: Tensor, cache: Cache, cache_index: Tensor, lengths: Tensor | None
    ) -> tuple[Tensor, Tensor, Cache]:
        logits, hidden, cache = self._call(token_ids, cache, tf.convert_to_tensor(cache_index), lengths)
        return ops.cast(logits, _FLOAT), ops.cast(hidden, _FLOAT), cache


class _RowByRow:
    """The steps of a task of KerasHub on each row alone, called in Keras.

    Args:
        model: `HubLanguageModel`.
    """

    def __init__(self, model: HubLanguageModel) -> None:
        self._model = model

    def __getattr__(self, name: str) -> object:
        return getattr(self._model, name)

    def prefill(self, token_ids: ArrayLike, lengths: ArrayLike, cache: Cache) -> tuple[Tensor, Tensor, Cache]:
        """As of the model."""
        return self.extend(token_ids, lengths, cache, np.zeros(len(token_ids), "int32"))

    def extend(
        self, token_ids: ArrayLike, lengths: ArrayLike, cache: Cache, cache_index: ArrayLike
    ) -> tuple[Tensor, Tensor, Cache]:
        """As of the model."""
        logits, hidden, cache = self.decode_step(token_ids, cache, cache_index)
        last = np.asarray(lengths)[:, None, None] - 1
        return ops.take_along_axis(logits, last, axis=1), hidden, cache

    def decode_step(self, token_ids: ArrayLike, cache: Cache, cache_index: ArrayLike) -> tuple[Tensor, Tensor, Cache]:
        """As of the model."""
        rows = range(len(token_ids))
        found = [
            self._model.row(
                ops.convert_to_tensor(token_ids[row : row + 1]),
                {name: ops.convert_to_tensor(each[row : row + 1]) for name, each in cache.items()},
                int(cache_index[row]),
            )
            for row in rows
        ]
        logits, hidden, caches = zip(*found, strict=True)
        whole = {name: ops.concatenate([each[name] for each in caches]) for name in caches[0]}
        return ops.cast(ops.concatenate(logits), _FLOAT), ops.cast(ops.concatenate(hidden), _FLOAT), whole


class _Steps:
    """The decoding steps of a `HubLanguageModel` in Keras. Implements `generation.protocols.DecodingSteps`.

    Args:
        model: `HubLanguageModel`.
    """

    def __init__(self, model: HubLanguageModel) -> None:
        self._model, self.spec = model, model.generation_spec

    def init_cache(self, batch_size: int, length: int, source: object = None) -> Cache:
        """Returns an empty cache."""
        return self._model.init_cache(batch_size, length)

    def prefill(self, token_ids: ArrayLike, lengths: ArrayLike, cache: Cache) -> tuple[ModelOutput, Cache]:
        """Reads prompts."""
        return _output(*self._model.prefill(token_ids, lengths, cache))

    def decode_step(self, token_ids: ArrayLike, cache: Cache, cache_index: ArrayLike) -> tuple[ModelOutput, Cache]:
        """Reads new tokens."""
        return _output(*self._model.decode_step(token_ids, cache, cache_index))

    def take_rows(self, cache: Cache, rows: Sequence[int]) -> Cache:
        """Returns the cache with the given rows."""
        return {name: ops.take(each, ops.convert_to_tensor(rows, "int32"), axis=0) for name, each in cache.items()}


def language_model_of(model: keras.Model, tokenizer: Tokenizer | None = None) -> keras.Model | HubLanguageModel:
    """A model with the steps of a language model: a task of KerasHub as `HubLanguageModel`, others as they are.

    Args:
        model: the model.
        tokenizer: takes the place of that of a task of KerasHub, if given.

    Raises:
        InvalidModelError: the task cannot generate from texts alone.
    """
    return HubLanguageModel(model, texts_of(model, tokenizer)) if is_causal_lm(model) else model


def _output(logits: Tensor, hidden: Tensor, cache: Cache) -> tuple[ModelOutput, Cache]:
    return ModelOutput(np.asarray(logits), np.asarray(hidden)), cache


def _longest(task: keras.Model) -> int | None:
    """The length of the shortest table of positions; None where there is none."""
    layers = keras_private.flatten_layers(task)
    tables = [each for each in layers if hasattr(each, "position_embeddings") and hasattr(each, "sequence_length")]
    return min((int(each.sequence_length) for each in tables), default=None)
