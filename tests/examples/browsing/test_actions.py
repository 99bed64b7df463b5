"""Actions as text."""

import pytest

from browsing import Action, InvalidActionError

TEXTS = {
    "search json.dumps default": ("search", "json.dumps default"),
    "open 12": ("open", 12),
    "scroll up": ("scroll", "up"),
    "find open 3": ("find", "open 3"),
    "back": ("back", ""),
    "quote New in version 3.8.": ("quote", "New in version 3.8."),
    "end": ("end", ""),
}


@pytest.mark.parametrize("text", TEXTS)
def test_text_and_action_are_inverse(text):
    action = Action.parse(text)
    assert (action.name, action.argument) == TEXTS[text]
    assert str(action) == text
    assert Action.parse(f"  {text} ") == action


@pytest.mark.parametrize(
    "text",
    [
        *("", "End", "jump 3", "open", "open 0", "open 01", "open -1", "open 1000", "open two", "open ٣", "open 1 2"),
        *("scroll left", "scroll", "search", "find ", "quote", "end now", "back 2", "end\n", "\nend", "end\r"),
        *("search a\nend", "find a\x00b", "quote a\u2028b", "search \u202ea", "search \ue000", "search " + "a" * 301),
    ],
)
def test_everything_else_is_refused(text):
    with pytest.raises(InvalidActionError):
        Action.parse(text)


@pytest.mark.parametrize("given", [("open", "3"), ("open", True), ("search", " a"), ("end", None), ("search", 3)])
def test_arguments_of_an_action_are_checked(given):
    with pytest.raises(InvalidActionError):
        Action(*given)
