"""The vocabulary of a model as the bytes of its tokens, for the `llguidance` library."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.generation.errors import GrammarError
from keras_transformer.generation.grammar.byte_text import ByteText
from keras_transformer.generation.grammar.grammar import Grammar, library, limits, one_line

if TYPE_CHECKING:
    import llguidance


# A character that no word begins with: the tokens after it do not depend on what a tokenizer adds before a text.
_BEFORE = "\x02"
_END = b"<|end of the grammar|>"
_DEAD_END = "The grammar cannot be continued: no tokens write"


class TokenBytes:
    """The bytes of every token of a model, and its tokens that end a text.

    Args:
        tokens: list of bytes by token id; for a special token its name; b"" for an unused id.
        special_ids: ids of special tokens, which only a `Lark` grammar may name.
        end_ids: ids of the tokens that end a text; none if a text ends where its grammar does.
        encode: function of a str to token ids.

    Attributes:
        text: `ByteText`, which decodes tokens.
        begins_with_digit: bool `(V,)`.

    Example:

    >>> from keras_transformer.generation import Regex
    >>> tokens = [b"a", b"b", b"ab", b"</s>"]
    >>> vocabulary = TokenBytes(tokens, [3], [3], encode=lambda text: ["ab".index(each) for each in text])
    >>> vocabulary.allowed(vocabulary.matcher(Regex("a*"))).tolist()
    [True, False, False, True]
    """

    def __init__(
        self,
        tokens: Sequence[bytes],
        special_ids: Sequence[int],
        end_ids: Sequence[int],
        encode: Callable[[str], Sequence[int]],
    ) -> None:
        self.text = ByteText(tokens, {*special_ids, *end_ids})
        self.begins_with_digit = np.array([token[:1].isdigit() for token in tokens], bool)
        self.end_ids = frozenset(end_ids)
        self.size = len(tokens)
        special = {*special_ids, *end_ids, self.size}
        # The library has one id for each sequence of bytes, and one for the end. The mask is copied to the other ids.
        first: dict[bytes, int] = {}
        same = dict.fromkeys(sorted(self.end_ids), self.size)
        for index, token in enumerate(tokens):
            if token and index not in special and first.setdefault(token, index) != index:
                same[index] = first[token]
        self._canonical = same
        self._copies = np.array(list(same), int), np.array(list(same.values()), int)
        unused = {index for index in same if index not in self.end_ids}
        words = [b"" if index in unused else token for index, token in enumerate(tokens)]
        self._words = _Words([*words, _END], sorted(special), [*tokens], first, encode)
        self.matcher = functools.lru_cache(maxsize=32)(self._matcher)

    @classmethod
    def of(cls, tokenizer: Any, size: int, end_ids: Sequence[int]) -> TokenBytes:
        """The tokens of a tokenizer.

        Args:
            tokenizer: a tokenizer of `keras_transformer.text`, or another with `token_bytes()`, `special_ids` and `encode`.
            size: int. Number of tokens of the model, which may be more than the tokenizer has.
            end_ids: ids of the tokens that end a text.

        Raises:
            GrammarError: the tokenizer does not know the bytes of its tokens.
            ImportError: `llguidance` is not installed.
        """
        if not hasattr(tokenizer, "token_bytes"):
            raise GrammarError(f"{type(tokenizer).__name__} has no token_bytes(), which a grammar needs.")
        try:
            tokens = tokenizer.token_bytes()[:size]
        except ValueError as error:
            raise GrammarError(f"A grammar needs the bytes of tokens. {error}") from None
        special = [index for index in tokenizer.special_ids if index < size]
        return cls([*tokens, *[b""] * (size - len(tokens))], special, end_ids, tokenizer.encode)

    @functools.cached_property
    def _tokenizer(self) -> llguidance.LLTokenizer:
        return library().LLTokenizer(self._words)

    def _matcher(self, grammar: Grammar) -> llguidance.LLMatcher:
        """The state of a grammar before the first token, an `LLMatcher` that must not be changed.

        Raises:
            GrammarError: the grammar cannot be used with this vocabulary.
        """
        matcher = library().LLMatcher(self._tokenizer, grammar.source, log_level=0, limits=limits())
        if matcher.is_error():
            raise GrammarError(f"{type(grammar).__name__}: {one_line(matcher.get_error())}")
        if not self.allowed(matcher.deep_copy()).any():
            raise GrammarError("The grammar has the empty text only, which a model without an end token cannot write.")
        return matcher

    def allowed(self, matcher: llguidance.LLMatcher) -> np.ndarray:
        """The tokens that may come next, bool `(V,)`.

        Raises:
            GrammarError: there are none, or the grammar exceeds the limits of the library.
        """
        self._words.missing.text = None
        bits = np.frombuffer(matcher.compute_bitmask(), "uint8")
        if self._words.missing.text is not None:
            raise GrammarError(f"{_DEAD_END} {self._words.missing.text!r:.80}")
        if matcher.is_error():
            raise GrammarError(_failure(matcher.get_error()))
        mask = np.unpackbits(bits, count=self.size + 1, bitorder="little").view(bool)
        mask[self._copies[0]] = mask[self._copies[1]]
        return mask[: self.size]

    def consume(self, matcher: llguidance.LLMatcher, tokens: Sequence[int]) -> bool:
        """Adds tokens to the state of a grammar; returns whether the text was incomplete before the last of them.

        Raises:
            GrammarError: they do not continue the text.
        """
        for index in tokens:
            if matcher.is_stopped():
                return False
            if not matcher.consume_token(self._canonical.get(index, index)):
                raise GrammarError(_failure(matcher.get_error()))
        return True


def _failure(message: str) -> str:
    if message.startswith("NoExtensionBias"):
        return f"{_DEAD_END} what has to come next."
    return f"The grammar failed: {one_line(message)}"


class _Words:
    """A tokenizer as `LLTokenizer` calls it: the protocol of `llguidance.TokenizerWrapper`.

    Attributes:
        missing: its "text" is what the last call of the thread could not write with tokens.
    """

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(
        self,
        tokens: Sequence[bytes],
        special_ids: Sequence[int],
        texts: Sequence[bytes],
        ids: dict[bytes, int],
        encode: Callable[[str], Sequence[int]],
    ) -> None:
        self.tokens = tokens
        self.special_token_ids = special_ids
        self.eos_token_id = len(tokens) - 1
        self.missing = threading.local()
        self._texts, self._ids, self._encode = texts, ids, encode
        self._longest = max(map(len, ids), default=1)

    def __call__(self, text: str) -> list[int]:
        """The tokens whose bytes are those of a text: those of the tokenizer, or the longest ones."""
        data = text.encode("utf-8")
        for before in ("", _BEFORE):
            try:
                tokens = [self._texts[index] for index in self._encode(before + text)]
            except (ValueError, LookupError):  # Not every text has tokens.
                break
            length = sum(map(len, tokens))
            while tokens and length > len(data):
                length -= len(tokens.pop(0))
            if b"".join(tokens) == data and all(token in self._ids for token in tokens):
                return [self._ids[token] for token in tokens]
        return self._greedy(data)

    def _greedy(self, data: bytes) -> list[int]:
        found, start = [], 0
        while start < len(data):
            sizes = range(min(self._longest, len(data) - start), 0, -1)
            size = next((size for size in sizes if data[start : start + size] in self._ids), None)
            if size is None:
                self.missing.text = data[start:].decode("utf-8", "replace")
                return []
            found.append(self._ids[data[start : start + size]])
            start += size
        return found
