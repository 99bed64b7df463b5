"""The state of a text browser, and its form as text for a language model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from browsing.errors import CorpusError
from browsing.pages import Link, Page


@dataclass(frozen=True)
class BrowserLimits:
    """Limits of an episode, and of what a model sees of it.

    Args:
        max_actions: int >= 1. Number of actions, invalid ones included. Default 20.
        max_quotes: int >= 1. Default 4.
        max_state: int >= 1. Size of a state as text, in the unit of `Browser(measure=...)`. Default 2,000.
        max_links: int >= 1. Number of links of a view that have a number. Default 20.
        max_results: int >= 1. Number of results of a search. Default 5.
        shown_actions: int >= 0. Number of past actions that a state shows. Default 6.
        max_question: int >= 1. Longest question, in characters. Default 300.
        max_quote: int >= 1. Longest quote, in characters. Default 300.
        seconds: float > 0. Time of all actions of an episode, spent in the browser. Default 60.

    Raises:
        CorpusError: a limit is out of range.

    Example:

    >>> BrowserLimits(max_actions=8).max_quotes
    4
    """

    max_actions: int = 20
    max_quotes: int = 4
    max_state: int = 2000
    max_links: int = 20
    max_results: int = 5
    shown_actions: int = 6
    max_question: int = 300
    max_quote: int = 300
    seconds: float = 60.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not (value > 0 or name == "shown_actions" and value == 0):
                raise CorpusError(f"{name} must be above 0. Received: {value!r}")


@dataclass(frozen=True)
class Quote:
    """A passage that a browser recorded.

    Attributes:
        text: str. As it stands in the page.
        address: str. The address of the page.
        title: str. The title of the page.
        section: str. The title of the innermost section around the passage, or "".
        line: int. The line of the page where the passage begins.

    Example:

    >>> quote = Quote("sleep a lot", "cats.html", "Cats", "Habits", 1)
    >>> quote.stands_in(Page("cats.html", "Cats", ("Habits", "They sleep a lot.")))
    True
    """

    text: str
    address: str
    title: str
    section: str
    line: int

    def stands_in(self, page: Page) -> bool:
        """Whether the text stands in a page, verbatim and where the quote says."""
        if page.address != self.address or not self.text or not 0 <= self.line < len(page.lines):
            return False
        first, end = page.line_starts[self.line], page.line_starts[self.line] + len(page.lines[self.line])
        return 0 <= page.text.find(self.text, first) < end


@dataclass(frozen=True)
class BrowserState:
    """What an episode has come to.

    Attributes:
        question: str.
        actions_left: int.
        quotes: tuple of `Quote`.
        past: tuple of str. The actions so far; for those that failed, a fixed note in their place.
        page: `Page`, or None before the first one.
        position: int. The first line of the view.

    Example:

    >>> BrowserState("What do cats do?", actions_left=9).quotes
    ()
    """

    question: str
    actions_left: int
    quotes: tuple[Quote, ...] = ()
    past: tuple[str, ...] = ()
    page: Page | None = None
    position: int = 0


@dataclass(frozen=True)
class View:
    """The visible part of a page: its lines with numbers after links, the links by number, and the end of the lines."""

    lines: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()
    end: int = 0


def render_state(state: BrowserState, limits: BrowserLimits, measure: Callable[[str], int] = len) -> tuple[str, View]:
    """Writes a state as text.

    Every line of a page begins with `| `, so that none can be mistaken for another part of the state. The view has as many
    lines as fit; a line that does not fit alone is cut.

    Args:
        state: `BrowserState`.
        limits: `BrowserLimits`.
        measure: function from str to int: the size of a text. Default: its number of characters.

    Returns:
        `(text, view)`: str, and the `View` that it shows.

    Example:

    >>> page = Page("a.html", "Cats", ("They sleep.",))
    >>> text, _ = render_state(BrowserState("What do cats do?", 9, past=("open 1",), page=page), BrowserLimits())
    >>> print(text)
    question: What do cats do?
    past: open 1
    left: 9
    page: Cats 1/1
    | They sleep.
    next:

    Reference: Nakano et al., WebGPT, arXiv 2112.09332, section 2 and figure 1.
    """
    head = [f"question: {state.question}", *map(_quote_line, state.quotes)]
    shown = state.past[-limits.shown_actions :] if limits.shown_actions else ()
    head += [f"past: {'; '.join(shown)}"] if shown else []
    head.append(f"left: {state.actions_left}")
    end = "next:"
    if state.page is None:
        return "\n".join([*head, end]), View()
    head.append(f"page: {state.page.title[:100]} {state.position + 1}/{len(state.page.lines)}")
    view = _view(state, limits, limits.max_state - measure("\n".join([*head, "", end])), measure)
    return "\n".join([*head, *view.lines, end]), view


def render_answer(state: BrowserState) -> str:
    """Writes the question and the quotes as text, after which a model writes the answer.

    Example:

    >>> print(render_answer(BrowserState("What do cats do?", 3, (Quote("sleep a lot", "a.html", "Cats", "Habits", 1),))))
    question: What do cats do?
    quote: Cats; Habits; sleep a lot
    answer:
    """
    return "\n".join([f"question: {state.question}", *map(_quote_line, state.quotes), "answer:"])


def _quote_line(quote: Quote) -> str:
    return f"quote: {quote.title[:60]}; {quote.section[:100]}; {quote.text}"


def _view(state: BrowserState, limits: BrowserLimits, budget: int, measure: Callable[[str], int]) -> View:
    """The lines from the position on that fit, at least one."""
    page = state.page
    lines: list[str] = []
    links: list[Link] = []
    assert page is not None
    for index in range(state.position, len(page.lines)):
        here = [link for link in page.links if link.line == index][: limits.max_links - len(links)]
        line = _numbered(page.lines[index], here, len(links))
        size = measure(line + "\n")
        if size > budget and lines:
            break
        while size > budget and len(line) > 3:
            line, here = line[: max(3, len(line) * max(budget, 1) // (size + 1))], []
            size = measure(line + "\n")
        budget -= size
        lines.append(line)
        links += here
    return View(tuple(lines), tuple(links), state.position + len(lines))


def _numbered(line: str, links: list[Link], before: int) -> str:
    """A line with `[n]` after the text of each link."""
    result, last = "| ", 0
    for number, link in enumerate(links, before + 1):
        result += f"{line[last : link.column]}[{number}]"
        last = link.column
    return result + line[last:]
