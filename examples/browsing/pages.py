"""HTML as lines of text with numbered links and sections."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from html.parser import HTMLParser

from browsing.actions import is_control

# Their content is not text.
_HIDDEN = {"script", "style", "template", "noscript", "nav", "footer", "svg", "select", "button", "textarea"}
_BLOCKS = {"address", "article", "aside", "blockquote", "br", "caption", "dd", "div", "dl", "dt", "fieldset", "figure"}
_BLOCKS |= {"form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main", "ol", "p", "pre", "section"}
_BLOCKS |= {"table", "tr", "ul", "title", "body", "html", "summary", "details"}
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
# Around the number of a link in the text of a block: private characters, which pages lose.
_OPEN, _CLOSE = "\ue000", "\ue001"
_LINE_WIDTH = 100


@dataclass(frozen=True)
class Link:
    """A link: its target as written in the page, and where its text ends, a line and a column."""

    target: str
    line: int
    column: int


@dataclass(frozen=True)
class Section:
    """A part of a page with a title: a heading, or an entry of a list of definitions.

    Attributes:
        title: str. Its first line.
        line, end: int. Its lines are `line <= i < end`.
        anchor: str. The `id` of the title, or "".
        is_definition: bool. Whether it is an entry (`<dt>`, `<dd>`).
    """

    title: str
    line: int
    end: int
    anchor: str
    is_definition: bool


@dataclass(frozen=True)
class Page:
    """A page as text.

    Attributes:
        address: str. Where it is in the corpus, such as "library/json.html".
        title: str. The first `<h1>`, or else the `<title>`, or else the address.
        lines: tuple of str of at most 100 characters, or of one longer word. No control characters; white space is one
            space.
        links: tuple of `Link`, in their order.
        sections: tuple of `Section`, in their order. A section may be within another.

    Example:

    >>> page = read_html("a.html", "<title>A</title><h1>Cats</h1><p>They <a href='b.html'>sleep</a>\\n a lot.</p>")
    >>> page.lines, page.links
    (('Cats', 'They sleep a lot.'), (Link(target='b.html', line=1, column=10),))
    """

    address: str
    title: str
    lines: tuple[str, ...]
    links: tuple[Link, ...] = ()
    sections: tuple[Section, ...] = ()

    @cached_property
    def text(self) -> str:
        """str: the lines joined by spaces, in which a quote must stand."""
        return " ".join(self.lines)

    @cached_property
    def line_starts(self) -> tuple[int, ...]:
        """Tuple of int: the index of each line in `text`."""
        starts, position = [], 0
        for line in self.lines:
            starts.append(position)
            position += len(line) + 1
        return tuple(starts)

    def section_at(self, line: int) -> Section | None:
        """The innermost section that contains a line, or None."""
        return next((each for each in reversed(self.sections) if each.line <= line < each.end), None)


def read_html(address: str, html: str) -> Page:
    """Reads HTML as text.

    Scripts, styles, navigation (`<nav>`, and `role="navigation"`), forms and permanent links of headings are left out.
    Broken HTML is read as far as it goes.

    Args:
        address: str. The address of the page.
        html: str.

    Returns:
        `Page`.

    Example:

    >>> read_html("a.html", "<h1>Cats</h1><script>end()</script><p>sleep").lines
    ('Cats', 'sleep')
    """
    reader = _Reader()
    reader.feed(html)
    reader.close()
    return reader.page(address)


@dataclass
class _OpenSection:
    tag: str
    line: int
    anchor: str
    title: str = ""
    end: int | None = None


@dataclass
class _List:
    """An open list of definitions: its entries whose end is not yet known."""

    open: list[_OpenSection] = field(default_factory=list)
    has_description: bool = False


class _Reader(HTMLParser):
    """Collects lines, links and sections."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._title: list[str] = []
        self._block: list[str] = []
        self._lines: list[str] = []
        self._targets: list[str] = []
        self._links: list[Link] = []
        self._sections: list[_OpenSection] = []
        self._lists: list[_List] = []
        # Tags whose content is left out, innermost last, and links: None for those without a target.
        self._skipped: list[str] = []
        self._anchors: list[int | None] = []
        self._in_title = self._in_pre = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "title":
            self._in_title = True
        if self._skipped:
            if tag == self._skipped[-1]:
                self._skipped.append(tag)
            return
        if tag in _HIDDEN or given.get("role") == "navigation" or _is_permanent_link(tag, given):
            self._skipped.append(tag)
            return
        if tag in _BLOCKS:
            self._end_block()
        if tag == "pre":
            self._in_pre = True
        elif tag == "a":
            self._start_link(given.get("href", ""))
        elif tag in _HEADINGS:
            self._start_section(tag, given.get("id", ""))
        elif tag == "dl":
            self._lists.append(_List())
        elif tag == "dt" and self._lists:
            if self._lists[-1].has_description:
                self._end_entries()
            self._lists[-1].open.append(self._start_section(tag, given.get("id", "")))
        elif tag == "dd" and self._lists:
            self._lists[-1].has_description = True

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        if self._skipped:
            if tag == self._skipped[-1]:
                self._skipped.pop()
            return
        if tag in _BLOCKS:
            self._end_block()
        if tag == "pre":
            self._in_pre = False
        elif tag == "a" and self._anchors:
            index = self._anchors.pop()
            if index is not None:
                self._block.append(f"{_OPEN}{index}{_CLOSE}")
        elif tag == "dl" and self._lists:
            self._end_entries()
            self._lists.pop()

    def handle_data(self, data: str) -> None:
        if self._in_title and not self._lines:
            self._title.append(data)
        if self._skipped or self._in_title:
            return
        if not self._in_pre:
            self._block.append(_clean(data))
            return
        for index, line in enumerate(data.split("\n")):
            if index:
                self._end_block()
            self._block.append(_clean(line))

    def page(self, address: str) -> Page:
        self._end_block()
        while self._lists:
            self._end_entries()
            self._lists.pop()
        heading = next((each.title for each in self._sections if each.tag == "h1" and each.title), "")
        title = heading or " ".join(_clean("".join(self._title)).split())
        ends = self._heading_ends()
        sections = tuple(
            Section(each.title, each.line, end if each.end is None else each.end, each.anchor, each.tag == "dt")
            for each, end in zip(self._sections, ends, strict=True)
            if each.title
        )
        return Page(address, title or address, tuple(self._lines), tuple(self._links), sections)

    def _start_link(self, target: str) -> None:
        self._anchors.append(len(self._targets) if target else None)
        if target:
            self._targets.append(target)

    def _start_section(self, tag: str, anchor: str) -> _OpenSection:
        section = _OpenSection(tag, len(self._lines), anchor)
        self._sections.append(section)
        return section

    def _end_entries(self) -> None:
        for entry in self._lists[-1].open:
            entry.end = len(self._lines)
        self._lists[-1].open, self._lists[-1].has_description = [], False

    def _heading_ends(self) -> list[int]:
        """A heading ends where the next one of its level or above begins."""
        ends = []
        for index, section in enumerate(self._sections):
            level = _HEADINGS.get(section.tag, 0)
            later = (each for each in self._sections[index + 1 :] if _HEADINGS.get(each.tag, 9) <= level)
            ends.append(next((each.line for each in later), len(self._lines)))
        return ends

    def _end_block(self) -> None:
        """Writes the text since the last block as lines."""
        text = "".join(self._block)
        self._block = []
        if not _visible(text).strip():
            return
        words = text.split()
        line: list[str] = []
        first, width = len(self._lines), 0
        for word in words:
            size = len(_visible(word))
            if line and width + 1 + size > _LINE_WIDTH:
                self._add_line(line)
                line, width = [], 0
            width += size + bool(line)
            line.append(word)
        self._add_line(line)
        for section in reversed(self._sections):
            if section.line != first:
                break
            section.title = section.title or self._lines[first]

    def _add_line(self, words: list[str]) -> None:
        text = ""
        for part in re.split(f"({_OPEN}[0-9]+{_CLOSE})", " ".join(words)):
            if part.startswith(_OPEN):
                self._links.append(Link(self._targets[int(part[1:-1])], len(self._lines), len(" ".join(text.split()))))
            else:
                text += part
        self._lines.append(" ".join(text.split()))


def _visible(text: str) -> str:
    return re.sub(f"{_OPEN}[0-9]+{_CLOSE}", "", text)


def _is_permanent_link(tag: str, attributes: dict[str, str]) -> bool:
    return tag == "a" and "headerlink" in attributes.get("class", "").split()


def _clean(text: str) -> str:
    """White space of any kind as spaces, and without control characters."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(" " if each.isspace() else each for each in text if each.isspace() or not is_control(each))
