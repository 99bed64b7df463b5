"""Grammars with the tokenizer of one model."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from keras_transformer.generation.errors import GrammarError, MissingTokenizerError
from keras_transformer.generation.grammar.constraint import Constraint
from keras_transformer.generation.grammar.grammar import Grammar
from keras_transformer.generation.grammar.token_bytes import TokenBytes

if TYPE_CHECKING:
    from keras_transformer.generation.generation_spec import GenerationSpec
    from keras_transformer.generation.protocols import TextTokenizer
    from keras_transformer.generation.stop import StopLike


class ModelGrammars:
    """What a `Generator` needs for the grammars of its requests. The tokenizer is read with the first grammar.

    Args:
        tokenizer: a tokenizer of `keras_transformer.text`, or None.
        spec: `GenerationSpec`.

    Example:

    >>> from keras_transformer.generation import GenerationSpec, Regex
    >>> from keras_transformer.text import Bytes
    >>> grammars = ModelGrammars(Bytes(), GenerationSpec(vocabulary_size=260, end_id=2))
    >>> grammars.check(Regex("a+"), stop=None)
    >>> grammars.constraint(Regex("a+")).is_complete([69])
    False
    """

    def __init__(self, tokenizer: TextTokenizer | None, spec: GenerationSpec) -> None:
        self._tokenizer = tokenizer
        self._spec = spec

    def check(self, grammar: Grammar | None, stop: StopLike) -> None:
        """Validates the arguments of a request.

        Raises:
            GrammarError: not a grammar; a grammar together with stop sequences.
            MissingTokenizerError: a grammar without a tokenizer.
        """
        if grammar is None:
            return
        if not isinstance(grammar, Grammar):
            raise GrammarError(f"grammar must be a JsonSchema, a Regex or a Lark. Received: {grammar!r:.80}")
        if self._tokenizer is None:
            raise MissingTokenizerError("A grammar needs the bytes of tokens. The model has no tokenizer.")
        if stop is not None:
            raise GrammarError("A grammar says itself where a text ends: stop is not supported with it.")

    def constraint(self, grammar: Grammar | None) -> Constraint | None:
        """Returns the constraint of one request, or None without a grammar.

        Raises:
            GrammarError: the grammar cannot be used with the tokenizer.
        """
        return None if grammar is None else Constraint(grammar, self._vocabulary)

    def decoder(self, grammar: Grammar | None) -> Any:
        """Returns what decodes results: the tokenizer, or with a grammar the bytes that it has accepted."""
        return self._tokenizer if grammar is None else self._vocabulary.text

    @functools.cached_property
    def _vocabulary(self) -> TokenBytes:
        return TokenBytes.of(self._tokenizer, self._spec.vocabulary_size, self._spec.end_ids)
