"""End tokens and stop sequences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from keras_transformer.generation.errors import GenerationError, MissingTokenizerError

if TYPE_CHECKING:
    from keras_transformer.generation.protocols import TextTokenizer

# A stop sequence, as text or token ids, or a list of them.
StopLike: TypeAlias = "str | Sequence[int] | Sequence[str | Sequence[int]] | None"


def as_end_ids(end_id: int | Sequence[int] | None) -> tuple[int, ...]:
    """Returns one, several or no end tokens as a tuple."""
    if end_id is None:
        return ()
    return (int(end_id),) if isinstance(end_id, (int, np.integer)) else tuple(map(int, end_id))


def check_stop(stop: StopLike, tokenizer: TextTokenizer | None) -> None:
    """Validates stop sequences.

    Raises:
        MissingTokenizerError: a stop sequence is text and there is no tokenizer.
        GenerationError: a stop sequence is empty, or neither text nor token ids.
    """
    for each in _as_list(stop):
        if isinstance(each, str) and tokenizer is None:
            raise MissingTokenizerError("stop is text, but the model has no tokenizer. Pass token ids.")
        if not isinstance(each, (str, list, tuple, np.ndarray)) or not len(each):
            raise GenerationError(f"stop must be text or token ids, not empty. Received: {each!r}")
        if not isinstance(each, str) and not all(isinstance(token, (int, np.integer)) and token >= 0 for token in each):
            raise GenerationError(f"Token ids of stop must be integers of 0 or more. Received: {repr(each)[:80]}")


class StopSequences:
    """Detects stop sequences in generated tokens, and truncates results and streams before them.

    Args:
        stop: str, list of ints, or a list of either; None for no stop sequence.
        tokenizer: `protocols.TextTokenizer`, for text stop sequences and text results; or None.
        end_ids: tuple of int. Tokens that end a sequence.
    """

    def __init__(self, stop: StopLike, tokenizer: Any, end_ids: tuple[int, ...]) -> None:
        self.texts = [each for each in _as_list(stop) if isinstance(each, str)]
        sequences = [list(map(int, each)) for each in _as_list(stop) if not isinstance(each, str)]
        # Longest first: if one is a suffix of another, the longer one is removed.
        self.sequences = sorted(sequences, key=len, reverse=True)
        self.tokenizer = tokenizer
        self.end_ids = end_ids

    def ends(self, tokens: list[int]) -> bool:
        """Returns whether the last of the new tokens completes a stop sequence."""
        if any(tokens[-len(sequence) :] == sequence for sequence in self.sequences):
            return True
        if not self.texts:
            return False
        # A character has at most four tokens, of one byte each. Four more, as the first character may be incomplete.
        reach = 4 * max(map(len, self.texts)) + 4
        tail = self.tokenizer.decode(tokens[-reach:])
        return any(text in tail for text in self.texts)

    def cut(self, tokens: Sequence[int], as_text: bool, prompt: Sequence[int] = ()) -> Any:
        """Returns the text, or the tokens, before the end token or stop sequence.

        With a prompt, the text keeps the space that joins it to the prompt.
        """
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
        """Yields pieces of text, or tokens, from an iterable of tokens; withholds what may be part of a stop sequence."""
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


def _as_list(stop: StopLike) -> list[Any]:
    """Returns stop sequences as a list of str and sequences of int."""
    if stop is None:
        return []
    if not isinstance(stop, (str, list, tuple, np.ndarray)):
        raise GenerationError(f"stop must be text, token ids, or a list of either. Received: {stop!r}")
    if isinstance(stop, str) or (len(stop) and isinstance(stop[0], (int, np.integer))):
        return [stop]
    return list(stop)
