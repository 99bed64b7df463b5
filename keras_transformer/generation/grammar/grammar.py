"""Base class of grammars."""

from __future__ import annotations

from keras_transformer.generation.errors import GrammarError
from keras_transformer.generation.grammar.library import library, limits, one_line


class Grammar:
    """A set of texts, as a grammar of the `llguidance` library. Base class of `JsonSchema`, `Regex` and `Lark`.

    Attributes:
        source: str. The grammar in the form of the library.
        max_digits: int or None: the digits in a row after which another character follows, where the grammar has one.
    """

    source: str
    max_digits: int | None = None

    def _set_source(self, source: str) -> None:
        """Sets `source` after validation.

        Raises:
            GrammarError: the library refuses the grammar.
        """
        message = library().LLMatcher.validate_grammar(source, limits=limits())
        if message and not message.startswith("WARNING"):
            raise GrammarError(f"{type(self).__name__}: {one_line(message)}")
        object.__setattr__(self, "source", source)
