"""The plainest search: one token after another, each row for itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.generation.arrays import numpy_ops
from keras_transformer.generation.decoding_request import ModelInput
from keras_transformer.generation.repetition import penalize_rows

if TYPE_CHECKING:
    from keras_transformer.generation.decoding_request import DecodingRequest, ModelOutput


class TokenSearch:
    """The course of one request with a sampler.

    See `protocols.Search`. A row that has finished repeats its last token until all rows have finished.

    Args:
        sampler: function of namespace, logits `(B, V)` and uniforms `(B,)` that returns tokens `(B,)`.
        request: `DecodingRequest`.
    """

    def __init__(self, sampler: Any, request: DecodingRequest) -> None:
        self.sampler = sampler
        self.request = request
        self.tokens: list[list[int]] = [[] for _ in request.prompts]
        self.emitted: list[list[int]] = [[] for _ in request.prompts]
        self._finished = np.zeros(len(request.prompts), bool)
        self._lengths = request.lengths
        self._generators = [np.random.default_rng(seed) for seed in request.seeds]

    def advance(self, output: ModelOutput) -> ModelInput | None:
        """See the class."""
        logits = penalize_rows(output.logits[:, -1], self._texts(), self.request.repetition_penalty)
        uniforms = np.array([generator.random(dtype="float32") for generator in self._generators])
        chosen = np.asarray(self.sampler(numpy_ops, logits, uniforms))
        self.emitted = [[] if over else [int(token)] for over, token in zip(self._finished, chosen, strict=True)]
        for row, emitted in enumerate(self.emitted):
            if emitted:
                self.tokens[row] += emitted
                self._finished[row] = self.request.is_over(self.tokens[row])
        if self._finished.all():
            return None
        # A finished row reads its last token again, at the same place: whatever comes of it is not looked at.
        index = self._lengths + np.array([len(tokens) - 1 for tokens in self.tokens], "int32")
        last = np.array([[tokens[-1]] for tokens in self.tokens], "int32")
        return ModelInput(last, index.astype("int32"))

    def _texts(self) -> Any:
        return ([*prompt, *tokens] for prompt, tokens in zip(self.request.prompts, self.tokens, strict=True))

    def results(self) -> list[list[list[int]]]:
        """The new tokens of each row, as a list of lists with one text in each."""
        return [[tokens] for tokens in self.tokens]
