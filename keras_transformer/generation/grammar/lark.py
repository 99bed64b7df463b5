"""Context-free grammars in the syntax of Lark."""

from __future__ import annotations

import dataclasses

from keras_transformer.generation.errors import GrammarError
from keras_transformer.generation.grammar.grammar import Grammar, library


@dataclasses.dataclass(frozen=True)
class Lark(Grammar):
    """The texts of a context-free grammar in the syntax of Lark.

    Args:
        grammar: str. Rules have lowercase names, terminals uppercase ones; a text is a `start`.

    Raises:
        GrammarError: the grammar is invalid.
        ImportError: `llguidance` is not installed.

    Example:

    >>> sums = Lark('''
    ... start: NUMBER ("+" start)?
    ... NUMBER: /[0-9]{1,3}/
    ... ''')

    Reference: the dialect of Lark that the `llguidance` library documents, in which `<name>` is a special token.
    """

    grammar: str
    source: str = dataclasses.field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.grammar, str):
            raise GrammarError(f"Lark: grammar must be str. Received: {self.grammar!r:.80}")
        self._set_source(library().LLMatcher.grammar_from_lark(self.grammar))
