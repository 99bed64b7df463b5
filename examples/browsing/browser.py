"""A text browser: an environment whose actions and states are texts."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from browsing.actions import Action, is_control
from browsing.client import SEARCH, CorpusClient
from browsing.errors import (
    BrowsingError,
    CorpusError,
    EpisodeEndedError,
    NoSuchLinkError,
    PageError,
    TextNotFoundError,
)
from browsing.pages import Page
from browsing.state import BrowserLimits, BrowserState, Quote, View, render_answer, render_state


class Browser:
    """Text browser over a corpus: an episode that starts with a question.

    Actions are texts, see `Action`; `text` is the state, for a language model to continue with the next action. An action
    that fails, for whatever reason, costs one action and changes nothing else. Only what is passed to `act` acts: the
    text of pages is shown, and never read as actions.

    Args:
        client: `CorpusClient`.
        question: str. One line.
        limits: `BrowserLimits`. None for the defaults.
        measure: function from str to int: the size of a text, such as its number of tokens. Default: its number of
            characters.

    Attributes:
        state: `BrowserState`.
        text: str. The state as text, at most `limits.max_state` long unless question and quotes alone are longer.
        view: `View`. The visible part of the page.
        ended: bool. Whether the episode has ended: after `end`, the last action, or the last second.
        error: `BrowsingError` of the last action, or None.

    Raises:
        CorpusError: the question is empty, too long, or has control characters.

    Example: over the folder `site` with the page "cats.html"; see `CorpusServer`.

    >>> import pathlib
    >>> from browsing import Corpus, CorpusServer
    >>> pathlib.Path("site").mkdir()
    >>> _ = pathlib.Path("site/cats.html").write_text("<title>Cats</title><p>Cats sleep a lot.")
    >>> class Everything:
    ...     def search(self, query, count):
    ...         return [0]
    >>> with CorpusServer(Corpus("site"), Everything()) as server:
    ...     browser = Browser(CorpusClient(server.origin), "What do cats do?")
    ...     for action in ("search cats", "open 1", "quote sleep a lot", "end"):
    ...         browser.act(action)
    >>> browser.ended, browser.state.quotes[0].text, browser.state.quotes[0].address
    (True, 'sleep a lot', 'cats.html')

    Reference: Nakano et al., WebGPT, arXiv 2112.09332, section 2. There, pages come from the web through Bing.
    """

    def __init__(
        self,
        client: CorpusClient,
        question: str,
        limits: BrowserLimits | None = None,
        measure: Callable[[str], int] = len,
    ) -> None:
        self.limits = BrowserLimits() if limits is None else limits
        question = question.strip(" ")
        if not 1 <= len(question) <= self.limits.max_question or any(map(is_control, question)):
            raise CorpusError(f"A question is one line of 1 to {self.limits.max_question} characters.")
        self._client, self._measure = client, measure
        self._history: list[tuple[Page | None, int]] = []
        self._seconds = 0.0
        self.state = BrowserState(question, self.limits.max_actions)
        self.ended = False
        self.error: BrowsingError | None = None
        self.text, self.view = "", View()
        self._render()

    def act(self, text: str) -> None:
        """Performs an action.

        Args:
            text: str. See `Action`.

        Raises:
            EpisodeEndedError: the episode has ended. Other errors are kept in `error`.
        """
        if self.ended:
            raise EpisodeEndedError("The episode has ended.")
        start = time.monotonic()
        try:
            action = Action.parse(text)
            self._perform(action)
            self.error, note = None, str(action)
        except BrowsingError as error:
            self.error, note = error, f"({error.note})"
        self._seconds += time.monotonic() - start
        left = self.state.actions_left - 1
        self.state = replace(self.state, actions_left=left, past=(*self.state.past, note))
        self.ended = self.ended or left == 0 or self._seconds > self.limits.seconds
        self._render()

    @property
    def answer_text(self) -> str:
        """str: question and quotes, for a language model to continue with the answer."""
        return render_answer(self.state)

    def _perform(self, action: Action) -> None:
        argument = action.argument
        if action.name == "search":
            self._go(self._client.search(str(argument), self.limits.max_results))
        elif action.name == "open":
            self._open(int(argument))
        elif action.name == "scroll":
            self._scroll(str(argument))
        elif action.name == "find":
            self._find(str(argument))
        elif action.name == "quote":
            self._quote(str(argument))
        elif action.name == "back":
            self._back()
        else:
            self.ended = True

    def _go(self, page: Page, position: int = 0) -> None:
        self._history.append((self.state.page, self.state.position))
        self.state = replace(self.state, page=page, position=position)

    def _open(self, number: int) -> None:
        if self.state.page is None or number > len(self.view.links):
            raise NoSuchLinkError(f"The view has no link {number}.")
        base = "" if self.state.page.address == SEARCH else self.state.page.address
        address, anchor = self._client.resolve(base, self.view.links[number - 1].target)
        page = self._client.page(address)
        found = (each.line for each in page.sections if each.anchor == anchor)
        self._go(page, next(found, 0) if anchor else 0)

    def _back(self) -> None:
        if not self._history:
            raise NoSuchLinkError("There is no page before.")
        page, position = self._history.pop()
        self.state = replace(self.state, page=page, position=position)

    def _page(self) -> Page:
        if self.state.page is None:
            raise PageError("No page is open.")
        return self.state.page

    def _scroll(self, direction: str) -> None:
        page, height = self._page(), max(self.view.end - self.state.position, 1)
        position = self.state.position + (height if direction == "down" else -height)
        if direction == "down" and position >= len(page.lines):
            raise TextNotFoundError("The page ends here.")
        self.state = replace(self.state, position=max(position, 0))

    def _find(self, text: str) -> None:
        """The next line with the text, after the first line of the view; from the beginning again after the last one."""
        page, first = self._page(), self.state.position
        count = len(page.lines)
        for line in (*range(first + 1, count), *range(min(first + 1, count))):
            if text in page.lines[line]:
                self.state = replace(self.state, position=line)
                return
        raise TextNotFoundError("The page does not contain the text.")

    def _quote(self, text: str) -> None:
        page = self._page()
        if page.address == SEARCH:
            raise TextNotFoundError("Results of a search are no source.")
        if len(text) > self.limits.max_quote or len(self.state.quotes) >= self.limits.max_quotes:
            raise TextNotFoundError("The quote is too long, or there are enough of them.")
        starts, view_end = page.line_starts, self.view.end
        start = page.text.find(text, starts[self.state.position] if starts else 0)
        end = starts[view_end] - 1 if view_end < len(starts) else len(page.text)
        if start < 0 or start + len(text) > end:
            raise TextNotFoundError("The view does not contain the text.")
        line = max(index for index in range(self.state.position, view_end) if starts[index] <= start)
        section = page.section_at(line)
        quote = Quote(text, page.address, page.title, section.title if section else "", line)
        self.state = replace(self.state, quotes=(*self.state.quotes, quote))

    def _render(self) -> None:
        self.text, self.view = render_state(self.state, self.limits, self._measure)
