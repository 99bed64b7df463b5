"""Regular expressions as grammars."""

from __future__ import annotations

import dataclasses

from keras_transformer.generation.errors import GrammarError
from keras_transformer.generation.grammar.grammar import Grammar, library


@dataclasses.dataclass(frozen=True)
class Regex(Grammar):
    """The texts that a regular expression matches as a whole.

    Args:
        pattern: str. In the syntax of Rust's `regex`, without look-around and back-references.

    Raises:
        GrammarError: the expression is invalid, or has a feature that is not supported.
        ImportError: `llguidance` is not installed.

    Example:

    >>> Regex(r"(yes|no)( [0-9]{1,3})?")
    Regex(pattern='(yes|no)( [0-9]{1,3})?')
    """

    pattern: str
    source: str = dataclasses.field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.pattern, str):
            raise GrammarError(f"Regex: pattern must be str. Received: {self.pattern!r:.80}")
        self._set_source(library().LLMatcher.grammar_from_regex(self.pattern))
