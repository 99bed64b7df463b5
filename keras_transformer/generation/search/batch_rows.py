"""Rows of a cache in which many beginnings of a text are read, one after another, without reading again what they share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.generation.decoding_request import ModelInput
from keras_transformer.generation.loop import pad

if TYPE_CHECKING:
    from keras_transformer.generation.decoding_request import DecodingRequest


class BatchRows:
    """Makes the `ModelInput` that has given texts read, each in a row of its own.

    A cache that can go back keeps in each row what was read there: of a new text only what differs is fed. One that cannot
    is kept as it is after the text that is certain, and every text is read from there.

    Args:
        request: `DecodingRequest`.
        width: int >= 1: the rows of each prompt.
    """

    def __init__(self, request: DecodingRequest, width: int) -> None:
        self.width = width
        self._rewinds = request.cache_is_rewindable
        self._room = int(request.lengths.max()) + request.max_new_tokens - 1
        self._certain = [len(prompt) for prompt in request.prompts]
        self._held = [prompt.tolist() for prompt in request.prompts for _ in range(width)]
        self._is_spread = False

    def place(self, texts: Any) -> list[list[int]]:
        """A row for each text of each prompt: one that holds much of it already.

        Args:
            texts: for each prompt a list of at most `width` lists of tokens.

        Returns:
            For each prompt a list of places below `width`, all different.
        """
        return [self._place(number, each) for number, each in enumerate(texts)]

    def _place(self, number: int, texts: Any):
        held = self._held[number * self.width : (number + 1) * self.width]
        free, places = list(range(self.width)), []
        for text in texts:
            places.append(max(free, key=lambda place: (_shared(held[place], text), -place)))
            free.remove(places[-1])
        return places

    def read(self, texts: Any) -> tuple[ModelInput, np.ndarray]:
        """Feeds texts.

        Args:
            texts: for each row a list of tokens, or None for a row of which nothing is wanted.

        Returns:
            `(model_input, places)`: and where among its logits the last token of each text stands, int `(R,)`.
        """
        texts = [held if text is None else text for text, held in zip(texts, self._held, strict=True)]
        lengths, certain = np.array([len(text) for text in texts]), np.repeat(self._certain, self.width)
        starts = [_shared(*pair) for pair in zip(self._held, texts, strict=True)] if self._rewinds else certain
        starts = np.minimum(starts, lengths - 1)
        # Few sizes, so that few shapes are compiled.
        size = 1 << int((lengths - starts).max() - 1).bit_length()
        if self._rewinds:
            size = min(size, self._room)
            index = np.maximum(0, lengths - size)
        else:
            size = min(size, self._room - int(certain.max()))
            index = starts
        tokens = [text[start : start + size] for text, start in zip(texts, index.tolist(), strict=True)]
        self._held = texts
        model_input = ModelInput(
            pad([*tokens, [0] * size])[:-1], index.astype("int32"), self._rows(), from_kept=not self._rewinds
        )
        return model_input, lengths - 1 - index

    def _rows(self) -> Any:
        """Which rows of the kept cache, or of the last one, are continued."""
        if self._rewinds and (self._is_spread or self.width == 1):
            return None
        self._is_spread = True
        return np.repeat(np.arange(len(self._certain), dtype="int32"), self.width)

    def move(self, texts: Any) -> ModelInput | None:
        """Commits the text of each prompt; returns the `ModelInput` that appends its last token to a kept cache, or None."""
        if self._rewinds:
            return None
        rows = np.arange(len(texts), dtype="int32")
        last, index = np.array([[text[-1]] for text in texts], "int32"), np.array(self._certain, "int32")
        self._certain = [len(text) for text in texts]
        return ModelInput(last, index, rows, from_kept=True, keep=True)


def _shared(one: Any, other: Any) -> int:
    """How many tokens two texts begin with alike."""
    for place, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return place
    return min(len(one), len(other))
