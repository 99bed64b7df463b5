"""The decoding loop as one graph, for compiling and for export."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from keras import ops

from keras_transformer.generation.samplers import Greedy
from keras_transformer.generation.stop import as_end_ids
from keras_transformer.utils.types import Cache, Tensor

if TYPE_CHECKING:
    from keras_transformer.generation.protocols import TokenSampler
    from keras_transformer.tasks.text.language_model import LanguageModel


def generate_graph(
    model: LanguageModel, sampler: TokenSampler | None = None, new_slots: int | None = None
) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    """Returns the decoding loop of a `LanguageModel` with a sampler as one function of tensors.

    Its results are equal to those of `model.generate`. Prompts may have different lengths, and the loop ends when all rows
    have an end token.

    Args:
        model: `LanguageModel`.
        sampler: `Greedy` or `Random`. Default None, for `Greedy()`.
        new_slots: int. Size of the output, if shapes must be static. Default None, for "max_new_tokens".

    Returns:
        Function of a dict with "token_ids" int32 `(B, T)`, "lengths" int32 `(B,)` and "max_new_tokens" int32 `()`. An
        encoder-decoder takes its `source_names`, usually "source_token_ids" and "source_padding_mask", in place of the
        first two, or in addition if its decoder takes prompts. A random sampler also takes "uniforms", float32
        `(B, new_slots)`. The function returns a dict with "new_token_ids" int32 `(B, new_slots)`, 0 after the end of a row,
        and "new_lengths" int32 `(B,)`, including the end token.
    """
    sampler = sampler or Greedy()

    def generate(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        max_new_tokens = tensors["max_new_tokens"]
        num_slots = max_new_tokens if new_slots is None else new_slots
        token_ids, lengths, memory = _prompt(model, tensors)
        batch = ops.shape(token_ids)[0]
        cache = {**model.init_cache(batch, ops.shape(token_ids)[1] + num_slots), **memory}
        logits, _, cache = model.prefill(token_ids, lengths, cache)
        rows = ops.expand_dims(ops.arange(batch, dtype="int32"), 1)
        updated = [name for name in cache if name not in memory]
        body = _Step(model, sampler, memory, updated, rows, tensors.get("uniforms"))

        def unfinished(step: Tensor, logits: Tensor, finished: Tensor, *_: Tensor) -> Tensor:
            return ops.logical_and(step < max_new_tokens, ops.logical_not(ops.all(finished)))

        state = (
            ops.zeros((), "int32"),
            logits,
            ops.zeros((batch,), "bool"),
            lengths,
            ops.zeros((batch, num_slots), "int32"),
            ops.zeros((batch,), "int32"),
            *(cache[name] for name in updated),
        )
        _, _, _, _, token_buffer, counts, *_ = ops.while_loop(unfinished, body.advance, state)
        return {"new_token_ids": token_buffer, "new_lengths": counts}

    return generate


class _Step(NamedTuple):
    """One step of the decoding loop.

    Attributes:
        model: `LanguageModel`.
        sampler: `Greedy` or `Random`.
        memory: the encoded source, which no step changes.
        updated: names of the tensors of the cache that each step changes.
        rows: int32 `(B, 1)`, the index of each row.
        uniforms: float32 `(B, new_slots)`, or None.
    """

    model: LanguageModel
    sampler: TokenSampler
    memory: Cache
    updated: list[str]
    rows: Tensor
    uniforms: Tensor | None

    def advance(
        self,
        step: Tensor,
        logits: Tensor,
        finished: Tensor,
        index: Tensor,
        token_buffer: Tensor,
        counts: Tensor,
        *tensors: Tensor,
    ) -> tuple[Tensor, ...]:
        """Returns the state of the loop after a token of each row: `tensors` are those of the cache."""
        drawn = None if self.uniforms is None else ops.take(self.uniforms, step, axis=1)
        token = self.sampler(ops, logits[:, -1], drawn)
        token_buffer = _write(token_buffer, self.rows, step, ops.where(finished, 0, token))
        counts = counts + ops.cast(ops.logical_not(finished), "int32")
        for end_id in as_end_ids(self.model.end_id):
            finished = ops.logical_or(finished, token == end_id)
        state = {**self.memory, **dict(zip(self.updated, tensors, strict=True))}
        logits, _, state = self.model.decode_step(ops.expand_dims(token, 1), state, index)
        return (step + 1, logits, finished, index + 1, token_buffer, counts, *(state[name] for name in self.updated))


def _prompt(model: LanguageModel, tensors: dict[str, Tensor]) -> tuple[Tensor, Tensor, Cache]:
    """Returns the decoder prompts, their lengths, and the encoded source."""
    source = [tensors[name] for name in model.source_names]
    memory = model.encode(*source) if source else {}
    if "token_ids" in tensors:
        return tensors["token_ids"], tensors["lengths"], memory
    batch = ops.shape(source[0])[0]
    return ops.full((batch, 1), model.start_id, dtype="int32"), ops.ones((batch,), "int32"), memory


def _write(token_buffer: Tensor, rows: Tensor, step: Tensor, token: Tensor) -> Tensor:
    # All export formats support a scatter into a buffer of fixed size.
    indices = ops.concatenate([rows, ops.zeros_like(rows) + step], axis=1)
    return ops.scatter_update(token_buffer, indices, token)
