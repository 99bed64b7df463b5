"""Where a text ends: at the end token, or before a stop sequence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from keras_transformer.generation.errors import GenerationError, MissingTokenizerError


def as_end_ids(end_id: int | Sequence[int] | None) -> tuple[int, ...]:
    """The tokens that end a text, as a tuple, of one, several or None."""
    if end_id is None:
        return ()
    return (int(end_id),) if isinstance(end_id, (int, np.integer)) else tuple(map(int, end_id))


def check_stop(stop: Any, tokenizer: Any) -> None:
    """Refuses stop sequences that are empty, of another kind, or text where there is no tokenizer."""
    for each in _as_list(stop):
        if isinstance(each, str) and tokenizer is None:
            raise MissingTokenizerError("stop is text, but the model has no tokenizer: give token ids.")
        if not isinstance(each, (str, list, tuple, np.ndarray)) or not len(each):
            raise GenerationError(f"stop must be text or token ids, not empty. Received: {each!r}")


class StopSequences:
    """Finds the end of a text while it is generated, cuts it there, and never streams past it.

    Args:
        stop: str, list of ints, or a list of either; None for none.
        tokenizer: for stop sequences and results that are text.
        end_ids: tuple of the tokens that end a text.
    """

    def __init__(self, stop: Any, tokenizer: Any, end_ids: tuple[int, ...]) -> None:
        self.texts = [each for each in _as_list(stop) if isinstance(each, str)]
        sequences = [list(map(int, each)) for each in _as_list(stop) if not isinstance(each, str)]
        # Where one ends another, the text ends before the longer.
        self.sequences = sorted(sequences, key=len, reverse=True)
        self.tokenizer = tokenizer
        self.end_ids = end_ids

    def ends(self, tokens: list[int]) -> bool:
        """Whether the new tokens end in, or the last of them completes, a stop sequence."""
        if any(tokens[-len(sequence) :] == sequence for sequence in self.sequences):
            return True
        if not self.texts:
            return False
        # A character is at most four tokens, of a byte each; a few more, as the first may be cut in two.
        reach = 4 * max(map(len, self.texts)) + 4
        tail = self.tokenizer.decode(tokens[-reach:])
        return any(text in tail for text in self.texts)

    def cut(self, tokens: Sequence[int], as_text: bool, prompt: Sequence[int] = ()) -> Any:
        """The text, or the tokens, up to the end. A text that continues a prompt begins with the space that joins them."""
        tokens = self._cut_tokens(list(tokens))
        if not as_text:
            return tokens
        before = self.tokenizer.decode(list(prompt))
        text = self.tokenizer.decode([*prompt, *tokens])[len(before) :]
        return text[: min((text.find(each) for each in self.texts if each in text), default=len(text))]

    def _cut_tokens(self, tokens: list[int]) -> list[int]:
        if tokens and tokens[-1] in self.end_ids:
            return tokens[:-1]
        for sequence in self.sequences:
            if tokens[-len(sequence) :] == sequence:
                return tokens[: -len(sequence)]
        return tokens

    def stream(self, tokens: Iterable[int], as_text: bool, prompt: Sequence[int] = ()) -> Iterator[Any]:
        """Pieces of the text (or tokens) that come from an iterator of tokens, holding back what may become a stop."""
        tokens = self._stream_tokens(tokens)
        return self._stream_text(tokens, prompt) if as_text else tokens

    def _stream_tokens(self, tokens: Iterable[int]) -> Iterator[int]:
        held, reach = [], max(map(len, self.sequences), default=0)
        for token in tokens:
            held.append(token)
            if self._cut_tokens(held) != held:
                break
            while len(held) > max(reach - 1, 0):
                yield held.pop(0)
        yield from self._cut_tokens(held)

    def _stream_text(self, tokens: Iterable[int], prompt: Sequence[int]) -> Iterator[str]:
        stream, held = self.tokenizer.stream(), ""
        for token in prompt:
            stream.push(token)
        reach = max(map(len, self.texts), default=1) - 1
        for token in tokens:
            held += stream.push(token)
            if any(text in held for text in self.texts):
                break
            ready = len(held) - reach
            if ready > 0:
                yield held[:ready]
                held = held[ready:]
        else:
            held += stream.finish()
        held = held[: min((held.find(each) for each in self.texts if each in held), default=len(held))]
        if held:
            yield held


def _as_list(stop: Any):
    """Stop sequences as a list: each a str, or a sequence of ints."""
    if stop is None:
        return []
    if not isinstance(stop, (str, list, tuple, np.ndarray)):
        raise GenerationError(f"stop must be text, token ids, or a list of either. Received: {stop!r}")
    if isinstance(stop, str) or (len(stop) and isinstance(stop[0], (int, np.integer))):
        return [stop]
    return list(stop)
