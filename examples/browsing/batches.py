"""Training batches of steps and of comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from browsing.episodes import Step
from browsing.errors import CorpusError
from keras_transformer.utils.labels import IGNORE_ID
from keras_transformer.utils.types import ArrayLike

if TYPE_CHECKING:
    from keras_transformer.data.batch_stream import BatchStream
    from keras_transformer.text.tokenizers.tokenizer import Tokenizer

_MULTIPLE = 32


def action_batches(
    steps: Sequence[Step],
    tokenizer: Tokenizer,
    *,
    batch_size: int = 16,
    max_length: int = 384,
    prompt_weight: float = 0.0,
    advantages: ArrayLike = None,
    seed: int = 0,
) -> BatchStream:
    """Batches of steps for the training of a language model on actions.

    A row is the tokens of the prompt, of a space with the action, and the end token. Its labels are the next tokens:
    those of the action with weight 1, those of the prompt with `prompt_weight`. Rows of similar length share a batch.

    Args:
        steps: list of `Step`.
        tokenizer: `text.Tokenizer` with an end token and a pad token.
        batch_size: int >= 1.
        max_length: int >= 2. Longer rows are left out; `dropped` of the result is their number.
        prompt_weight: float >= 0. With 0 (default), labels of the prompt are -100.
        advantages: float `(len(steps),)`, or None. With them, the batches are those of `training.PolicyGradientTrainer`.
        seed: int.

    Returns:
        `data.BatchStream` of `(inputs, labels, weights)`: a dict of "token_ids" int32 and "padding_mask" bool `(B, T)`,
        int32 `(B, T)` and float32 `(B, T)`. With advantages: of `(inputs, labels)`, and "advantages" float32 `(B,)` in
        the inputs.

    Raises:
        CorpusError: there is no row, or the tokenizer has no end or pad token.

    Example:

    >>> from keras_transformer import text
    >>> batches = action_batches([Step("next:", "end")], text.Bytes(), batch_size=1)
    >>> inputs, labels, weights = batches[0]
    >>> inputs["token_ids"].shape, int(weights.sum())  # A space and "end" are four bytes, and there is the end token.
    ((1, 32), 5)
    """
    if tokenizer.end_id is None or tokenizer.pad_id is None:
        raise CorpusError("The tokenizer has no end token or no pad token.")
    prompts = tokenizer.encode([step.prompt for step in steps]) if steps else []
    actions = tokenizer.encode([f" {step.action}" for step in steps]) if steps else []
    rows = [[*prompt, *action, tokenizer.end_id] for prompt, action in zip(prompts, actions, strict=True)]
    kept = [index for index, row in enumerate(rows) if len(row) <= max_length]
    if not kept:
        raise CorpusError(f"There is no step of at most {max_length} tokens.")
    values = None if advantages is None else np.asarray(advantages, "float32")[kept]
    data = _Rows([rows[i] for i in kept], [len(prompts[i]) for i in kept], prompt_weight, tokenizer.pad_id, values)
    stream = data.stream(batch_size, seed)
    stream.dropped = len(rows) - len(kept)
    return stream


class _Rows:
    """Rows of token ids with the lengths of their prompts."""

    def __init__(
        self,
        rows: list[list[int]],
        prompts: list[int],
        prompt_weight: float,
        pad_id: int,
        advantages: np.ndarray | None,
    ) -> None:
        self._rows, self._prompts, self._weight = rows, np.array(prompts), prompt_weight
        self._pad_id, self._advantages = pad_id, advantages
        self._lengths = np.array([len(row) - 1 for row in rows])

    def stream(self, batch_size: int, seed: int) -> BatchStream:
        from keras_transformer.data.batch_stream import BatchStream

        def make(epoch: int, step: int) -> Any:
            return self._batch(self._order(epoch, batch_size, seed)[step])

        return BatchStream(make, -(-len(self._rows) // batch_size))

    def _order(self, epoch: int, batch_size: int, seed: int) -> list[np.ndarray]:
        """The rows of each batch: similar lengths together, ties in random order; the batches in random order."""
        rng = np.random.default_rng((seed, epoch))
        order = rng.permutation(len(self._rows))
        order = order[np.argsort(self._lengths[order] // _MULTIPLE, kind="stable")]
        batches = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
        return [batches[index] for index in rng.permutation(len(batches))]

    def _batch(self, rows: np.ndarray) -> Any:
        length = -(-int(self._lengths[rows].max()) // _MULTIPLE) * _MULTIPLE
        token_ids = np.full((len(rows), length + 1), self._pad_id, "int32")
        for index, row in enumerate(rows):
            token_ids[index, : len(self._rows[row])] = self._rows[row]
        positions = np.arange(length)
        real = positions < self._lengths[rows, None]
        # The token before the action predicts its first one.
        acts = real & (positions >= self._prompts[rows, None] - 1)
        weights = np.where(acts, 1.0, np.where(real, self._weight, 0.0)).astype("float32")
        labels = np.where(weights > 0, token_ids[:, 1:], IGNORE_ID).astype("int32")
        inputs = {"token_ids": token_ids[:, :-1], "padding_mask": real}
        if self._advantages is None:
            return inputs, labels, weights
        return {**inputs, "advantages": self._advantages[rows]}, labels
