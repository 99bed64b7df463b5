"""The actions of a text browser, and their form as text."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from browsing.errors import InvalidActionError

# Name of an action to the form of its argument.
ACTIONS = {
    "search": "text",
    "open": "number",
    "scroll": "direction",
    "find": "text",
    "back": "nothing",
    "quote": "text",
    "end": "nothing",
}
_DIRECTIONS = ("down", "up")
# Longer texts are refused: an action is one line.
MAX_ARGUMENT = 300
_MAX_NUMBER = 999


@dataclass(frozen=True)
class Action:
    """One action of a text browser.

    | text | meaning |
    |---|---|
    | `search QUERY` | full-text search; the results are a page of links |
    | `open NUMBER` | follow a numbered link of the view |
    | `scroll down`, `scroll up` | the next or the previous part of the page |
    | `find TEXT` | move to the next line with this text |
    | `back` | the page before |
    | `quote TEXT` | record a passage of the view, verbatim |
    | `end` | stop browsing, to answer |

    Args:
        name: str. One of the names above.
        argument: str or int. A text without control characters, of 1 to 300 characters; a number of 1 to 999; "down" or
            "up"; or "" (default) for none.

    Raises:
        InvalidActionError: unknown name, or an argument of another form.

    Example:

    >>> str(Action("open", 3))
    'open 3'
    >>> Action.parse("scroll down")
    Action(name='scroll', argument='down')

    Reference: Nakano et al., WebGPT, arXiv 2112.09332, table 1. There, a link is opened by a number of the whole page,
        there are actions for the top of the page and for an answer that is impossible, and a search replaces the page
        without a way back to it.
    """

    name: str
    argument: str | int = ""

    def __post_init__(self) -> None:
        if self.name not in ACTIONS:
            raise InvalidActionError(f"No action {self.name!r}. Expected one of: {', '.join(ACTIONS)}")
        form, argument = ACTIONS[self.name], self.argument
        if form == "number":
            valid = type(argument) is int and 1 <= argument <= _MAX_NUMBER
        elif form == "direction":
            valid = argument in _DIRECTIONS
        elif form == "nothing":
            valid = argument == ""
        else:
            valid = isinstance(argument, str) and _is_text(argument)
        if not valid:
            raise InvalidActionError(f"Invalid argument of {self.name!r}: {str(argument)[:50]!r}. Expected: {form}")

    def __str__(self) -> str:
        return f"{self.name} {self.argument}" if self.argument != "" else self.name

    @classmethod
    def parse(cls, text: str) -> Action:
        """Reads an action that `str(action)` has written.

        Args:
            text: str. One line; spaces around it are ignored.

        Raises:
            InvalidActionError: it is no action: an unknown name, an invalid argument, or several lines.
        """
        name, _, argument = text.strip(" ").partition(" ")
        argument = argument.strip(" ")
        if ACTIONS.get(name) == "number":
            if not re.fullmatch(r"[1-9][0-9]{0,2}", argument):
                raise InvalidActionError(f"Invalid number of {name!r}: {argument[:50]!r}")
            return cls(name, int(argument))
        return cls(name[:50], argument)


def is_control(character: str) -> bool:
    """Whether a character is a control, a format, a private or a surrogate one, or a separator of lines."""
    return unicodedata.category(character) in ("Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp")


def _is_text(argument: str) -> bool:
    if not 1 <= len(argument) <= MAX_ARGUMENT or argument != argument.strip(" "):
        return False
    return not any(map(is_control, argument))
