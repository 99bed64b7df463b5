"""Token-by-token decoding with a sampler."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.generation.arrays import numpy_ops
from keras_transformer.generation.decoding_request import ModelInput
from keras_transformer.generation.protocols import Search

if TYPE_CHECKING:
    from keras_transformer.generation.decoding_request import DecodingRequest, ModelOutput
    from keras_transformer.generation.protocols import TokenSampler


class TokenSearch(Search):
    """The decoding state of one request with a sampler that selects one token per step. Implements `protocols.Search`.

    Args:
        sampler: `protocols.TokenSampler`.
        request: `DecodingRequest`.
    """

    def __init__(self, sampler: TokenSampler, request: DecodingRequest) -> None:
        self.sampler = sampler
        self.request = request
        self.tokens: list[list[int]] = [[] for _ in request.prompts]
        self.emitted: list[list[int]] = [[] for _ in request.prompts]
        self._finished = np.zeros(len(request.prompts), bool)
        self._lengths = request.lengths
        # To seed a generator takes as long as some steps of a small model.
        self._generators = [np.random.default_rng(seed) for seed in request.seeds] if sampler.is_random else []

    def advance(self, output: ModelOutput) -> ModelInput | None:
        """See `protocols.Search`."""
        rows = ((row, None if over else self.tokens[row]) for row, over in enumerate(self._finished))
        logits = self.request.process_logits(output.logits[:, -1], rows)
        uniforms = np.array([generator.random(dtype="float32") for generator in self._generators], "float32")
        chosen = np.asarray(self.sampler(numpy_ops, logits, uniforms)).tolist()
        self.emitted = [[] if over else [token] for over, token in zip(self._finished, chosen, strict=True)]
        for row, emitted in enumerate(self.emitted):
            if emitted:
                self.tokens[row] += emitted
                self._finished[row] = self.request.is_finished(self.tokens[row])
        if self._finished.all():
            return None
        # A finished row reads its last token again at the same index; the output is ignored.
        read = np.array([len(tokens) - 1 for tokens in self.tokens], "int32")
        last = np.array([[tokens[-1]] for tokens in self.tokens], "int32")
        return ModelInput(last, self._lengths + read)

    def results(self) -> list[list[list[int]]]:
        """Returns the new tokens of each prompt, as a list of one sequence."""
        return [[tokens] for tokens in self.tokens]
