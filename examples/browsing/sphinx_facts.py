"""Questions whose answers stand in documentation that Sphinx wrote."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from browsing.client import CorpusClient
from browsing.errors import BrowsingError
from browsing.pages import Page, Section
from browsing.state import Quote

_ADDED = re.compile(r"(?:New|Added) in version ([0-9]+\.[0-9]+)\.")
_DEPRECATED = re.compile(r"Deprecated since version ([0-9]+\.[0-9]+)")
_DEFAULT = re.compile(r"[(, ](\w+)=(None|True|False|-?[0-9][\w.]*|'[^']{0,12}')(?=[,)\[])")


@dataclass(frozen=True)
class Fact:
    """A question about an entry of documentation, its answer, and the passage that says it.

    Attributes:
        question: str.
        answer: str.
        name: str. The full name of the entry, such as "json.dumps".
        kind: str. "added", "deprecated" or "default".
        quote: str. The passage.
        address: str. The page.
        line, end: int. The lines of the entry in the page, `line <= i < end`.

    Example:

    >>> fact = Fact("Which version added cats.nap?", "1.4", "cats.nap", "added", "New in version 1.4.", "cats.html", 3, 9)
    >>> fact.is_answered("1.4", [])
    True
    """

    question: str
    answer: str
    name: str
    kind: str
    quote: str
    address: str
    line: int
    end: int

    def is_answered(self, answer: str, quotes: Sequence[Quote]) -> bool:
        """Whether an answer is right, whatever the quotes are."""
        del quotes
        return answer.strip() == self.answer

    def is_proven(self, answer: str, quotes: Sequence[Quote], client: CorpusClient) -> bool:
        """Whether an answer is right, and one of its quotes shows it.

        Every quote must stand in its page, which is read again; one must lie within the entry and contain the passage.
        """
        if not self.is_answered(answer, quotes) or not quotes:
            return False
        try:
            if not all(quote.stands_in(client.page(quote.address)) for quote in quotes):
                return False
        except BrowsingError:
            return False
        return any(self.is_shown_by(quote) for quote in quotes)

    def is_shown_by(self, quote: Quote) -> bool:
        """Whether a quote lies within the entry and contains the passage."""
        within = quote.address == self.address and self.line <= quote.line < self.end
        return within and self.quote in quote.text


def sphinx_facts(pages: Iterable[Page]) -> list[Fact]:
    """Returns the facts of pages that Sphinx wrote: when functions were added or deprecated, and defaults of arguments.

    An entry is a definition with an anchor and parentheses. The passage must stand in its own lines, not in those of an
    inner entry, and only once.

    Args:
        pages: iterable of `Page`.

    Returns:
        List of `Fact`.

    Example:

    >>> from browsing import read_html
    >>> html = '<dl><dt id="cats.nap">cats.nap(hours=2)</dt><dd><p>New in version 1.4.</p></dd></dl>'
    >>> for fact in sphinx_facts([read_html("cats.html", html)]):
    ...     print(fact.question, fact.answer)
    Which version added cats.nap? 1.4
    What is the default of hours in cats.nap? 2
    """
    facts, seen = [], set()
    for page in pages:
        for section in page.sections:
            called = re.search(r"([A-Za-z_][\w.]*)\(", section.title)
            name = section.anchor
            if not section.is_definition or called is None or not re.fullmatch(r"[A-Za-z_][\w.]{2,59}", name):
                continue
            if name.rpartition(".")[2] == called[1].rpartition(".")[2] and name not in seen:
                seen.add(name)
                facts += _facts_of(page, section, name)
    return facts


def _facts_of(page: Page, section: Section, name: str) -> list[Fact]:
    own = [page.lines[line] for line in range(section.line, section.end) if page.section_at(line) == section]
    found = [("added", f"Which version added {name}?", _only(_ADDED, own, whole=True))]
    found.append(("deprecated", f"Since which version is {name} deprecated?", _only(_DEPRECATED, own)))
    default = _DEFAULT.search(section.title)
    if default:
        passage = f"{default[1]}={default[2]}"
        question = f"What is the default of {default[1]} in {name}?"
        found.append(("default", question, (passage, default[2]) if section.title.count(passage) == 1 else None))
    place = (page.address, section.line, section.end)
    return [Fact(question, each[1], name, kind, each[0], *place) for kind, question, each in found if each]


def _only(pattern: re.Pattern[str], lines: Sequence[str], whole: bool = False) -> tuple[str, str] | None:
    """The passage and the answer of the only line that matches, or None."""
    matches = [match for match in map(pattern.fullmatch if whole else pattern.match, lines) if match]
    return (matches[0][0], matches[0][1]) if len(matches) == 1 else None
