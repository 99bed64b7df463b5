"""Base class of grammars, and the `llguidance` library: its import, its limits, and its messages in one line."""

from __future__ import annotations

import functools
from types import ModuleType

from keras_transformer.generation.errors import GrammarError
from keras_transformer.version import install_command

_MAX_MESSAGE = 300


@functools.cache
def library() -> ModuleType:
    """The module `llguidance`.

    Raises:
        ImportError: it is not installed; the message has the install command.
    """
    try:
        import llguidance
    except ImportError as error:
        raise ImportError(f"Grammars need llguidance: {install_command('grammar')}") from error
    return llguidance


@functools.cache
def limits() -> ModuleType:
    """The limits of time and memory of a grammar: those of the library. Messages leave the state of the parser out."""
    return library().LLParserLimits(verbose_errors=False)


def one_line(message: str) -> str:
    """A message of the library without the frames that point into the source, in one line.

    Example:

    >>> one_line('at 1(8): unknown name: "foo"\\n   1 | start: foo\\n              ^\\n')
    'at 1(8): unknown name: "foo"'
    """
    lines = [line.strip() for line in message.splitlines()]
    lines = [line for line in lines if line.strip("^ ") and line != "<non-verbose/>" and not _is_frame(line)]
    return " ".join(lines)[:_MAX_MESSAGE]


def _is_frame(line: str) -> bool:
    number, bar, _ = line.partition(" | ")
    return bool(bar) and number.isdigit()


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
