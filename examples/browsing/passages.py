"""Passages of pages, for retrieval without a browser."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from browsing.full_text import FullTextIndex
from browsing.pages import Page
from browsing.state import Quote


@dataclass(frozen=True)
class Passage:
    """A part of the text of a page: `page.text[start:end]`.

    Example:

    >>> Passage(Page("cats.html", "Cats", ("They sleep.", "They purr.")), 12, 22).text
    'They purr.'
    """

    page: Page
    start: int
    end: int

    @property
    def text(self) -> str:
        """str: the passage."""
        return self.page.text[self.start : self.end]

    def quote(self, text: str) -> Quote | None:
        """The quote of a text of the passage, or None if it does not contain the text."""
        place = self.page.text.find(text, self.start, self.end)
        if not text or place < 0:
            return None
        line = max(index for index, start in enumerate(self.page.line_starts) if start <= place)
        section = self.page.section_at(line)
        return Quote(text, self.page.address, self.page.title, section.title if section else "", line)


def cut_passages(pages: Sequence[Page], size: int = 500) -> list[Passage]:
    """Cuts pages into passages of whole lines.

    Args:
        pages: list of `Page`.
        size: int >= 1. Maximum number of characters of a passage of several lines. Default 500.

    Returns:
        List of `Passage`.

    Example:

    >>> page = Page("cats.html", "Cats", ("They sleep.", "They purr.", "They eat."))
    >>> [passage.text for passage in cut_passages([page], size=22)]
    ['They sleep. They purr.', 'They eat.']
    """
    passages = []
    for page in pages:
        ends = [start + len(line) for start, line in zip(page.line_starts, page.lines, strict=True)]
        first = 0
        for line in range(1, len(page.lines) + 1):
            if line == len(page.lines) or ends[line] - page.line_starts[first] > size:
                passages.append(Passage(page, page.line_starts[first], ends[line - 1]))
                first = line
    return passages


class PassageIndex:
    """Full-text search among passages.

    Args:
        passages: list of `Passage`.

    Raises:
        ImportError: bm25s is not installed.
        CorpusError: there is no passage with a word.

    Example:

    ```
    index = PassageIndex(cut_passages(corpus.pages()))
    index.best("Which version added json.dumps?").text
    ```
    """

    def __init__(self, passages: Sequence[Passage]) -> None:
        self.passages = list(passages)
        self._index = FullTextIndex(f"{passage.page.title} {passage.text}" for passage in self.passages)

    def best(self, query: str) -> Passage | None:
        """The best passage for a query, or None if no passage has a word of it."""
        found = self._index.search(query, 1)
        return self.passages[found[0]] if found else None
