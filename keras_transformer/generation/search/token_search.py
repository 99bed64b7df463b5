"""The plainest search: one token after another, each row for itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.generation.arrays import numpy_ops
from keras_transformer.generation.plan import Feed
from keras_transformer.generation.repetition import penalize_rows

if TYPE_CHECKING:
    from keras_transformer.generation.plan import Output, Plan


class TokenSearch:
    """The course of one request with a sampler.

    The contract of every search: `advance` is given what the model says of the tokens it has read, the prompts first, and
    returns a `Feed` of what to read next, or None when all is done. `emitted` are the tokens of each row that have become
    certain in this step; `results` are the texts.

    Args:
        sampler: function of namespace, logits `(B, V)` and uniforms `(B,)` that returns tokens `(B,)`.
        plan: `Plan`.
    """

    def __init__(self, sampler: Any, plan: Plan) -> None:
        self.sampler = sampler
        self.plan = plan
        self.tokens = [[] for _ in plan.prompts]
        self.emitted = [[] for _ in plan.prompts]
        self._finished = np.zeros(len(plan.prompts), bool)
        self._lengths = plan.lengths
        self._generators = [np.random.default_rng(seed) for seed in plan.seeds]

    def advance(self, output: Output) -> Feed | None:
        """See the class."""
        logits = penalize_rows(output.logits[:, -1], self._texts(), self.plan.repetition_penalty)
        uniforms = np.array([generator.random(dtype="float32") for generator in self._generators])
        chosen = np.asarray(self.sampler(numpy_ops, logits, uniforms))
        self.emitted = [[] if over else [int(token)] for over, token in zip(self._finished, chosen, strict=True)]
        for row, emitted in enumerate(self.emitted):
            if emitted:
                self.tokens[row] += emitted
                self._finished[row] = self.plan.is_over(self.tokens[row])
        if self._finished.all():
            return None
        # A finished row reads its last token again, at the same place: whatever comes of it is not looked at.
        index = self._lengths + np.array([len(tokens) - 1 for tokens in self.tokens], "int32")
        last = np.array([[tokens[-1]] for tokens in self.tokens], "int32")
        return Feed(last, index.astype("int32"))

    def _texts(self) -> Any:
        return ([*prompt, *tokens] for prompt, tokens in zip(self.plan.prompts, self.tokens, strict=True))

    def results(self) -> list[list[list[int]]]:
        """The new tokens of each row, as a list of lists with one text in each."""
        return [[tokens] for tokens in self.tokens]
