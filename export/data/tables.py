"""Tables and lines of text, of which the output of a command consists."""

import html
from collections.abc import Iterable, Sequence
from typing import NamedTuple

_GAP = 2


class Verdict(NamedTuple):
    """The last line of a command: what is shown, green or red on a terminal.

    Args:
        text: the line.
        is_good: whether it is good news.
    """

    text: str
    is_good: bool = True

    def __str__(self) -> str:
        return self.text


class Table(NamedTuple):
    """Rows of text under a head; `str()` is a table of fixed width.

    Args:
        head: names of the columns.
        rows: a cell for each column.
        texts: names of the columns of words, which are left-aligned and may be wrapped. The others are right-aligned.

    Example:

    >>> print(Table(("format", "size"), [("onnx", "3.4 MB"), ("saved_model", "12.0 MB")], texts=("format",)))
    format          size
    onnx          3.4 MB
    saved_model  12.0 MB
    """

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    texts: Sequence[str] = ()

    def __str__(self) -> str:
        widths = self._widths()
        return "\n".join(self._line(line, widths) for line in (self.head, *self.rows))

    def _widths(self) -> list[int]:
        return [max(map(len, column)) for column in zip(self.head, *self.rows, strict=True)]

    def _line(self, cells: Sequence[str], widths: Sequence[int]) -> str:
        aligned = (
            cell.ljust(width) if name in self.texts else cell.rjust(width)
            for name, cell, width in zip(self.head, cells, widths, strict=True)
        )
        return (" " * _GAP).join(aligned).rstrip()

    def widths(self, available: int, gap: int = _GAP) -> list[int] | None:
        """Returns the widths of the columns in a space; None if a word or a number would have to be broken.

        Args:
            available: int. Width of the space.
            gap: int. Spaces between two columns.
        """
        columns = zip(self.head, *self.rows, strict=True)
        pieces = ([*name.split(), *_pieces(cells, name in self.texts)] for name, *cells in columns)
        least = [max(map(len, each)) for each in pieces]
        spare = available - sum(least) - gap * (len(least) - 1)
        if spare < 0:
            return None
        full = self._widths()
        if sum(full) <= sum(least) + spare:
            return full
        # The names of columns of numbers are wrapped first.
        wanted = [
            each - width if name in self.texts else 0 for name, each, width in zip(self.head, full, least, strict=True)
        ]
        share = min(1.0, spare / max(sum(wanted), 1))
        return [width + int(more * share) for width, more in zip(least, wanted, strict=True)]


Part = str | Verdict | Table


def plain(parts: Iterable[Part]) -> str:
    """Returns parts one below another, in full width."""
    return "\n".join(map(str, parts))


def html_of(parts: Iterable[Part]) -> str:
    """Returns parts as HTML, for notebooks.

    Example:

    >>> html_of(["a < b", Table(("x",), [("1",)])])
    '<div>a &lt; b</div><table><thead><tr><th>x</th></tr></thead><tbody><tr><td>1</td></tr></tbody></table>'
    """
    return "".join(_html(each) for each in parts)


def _html(part: Part) -> str:
    if not isinstance(part, Table):
        text = html.escape(str(part))
        return f"<div>{f'<b>{text}</b>' if isinstance(part, Verdict) else text}</div>" if text else ""
    head = "".join(f"<th>{html.escape(each)}</th>" for each in part.head)
    rows = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in part.rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _pieces(cells: Iterable[str], is_text: bool) -> list[str]:
    """The parts of cells that are not broken: the words of a text, all of a number with its unit."""
    return [piece for cell in cells for piece in (cell.split() if is_text else [cell])]
