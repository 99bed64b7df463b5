"""Tables and lines of the commands: fitted to a terminal, and plain and complete elsewhere."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from rich.console import Console

_GAP = 2
# A label at the beginning of a line, and the space after it, under which the rest of a long line is indented.
_LABEL = re.compile(r"\s*\S+\s{2,}|\s*")


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


def show(parts: Iterable[Part]) -> None:
    """Prints parts on stdout: fitted to the width of a terminal, plain elsewhere and without `rich`.

    `NO_COLOR` and `COLUMNS` have their usual effects.
    """
    parts = list(parts)
    console = _console()
    if console is None:
        print(plain(parts))
        return
    for part in parts:
        if isinstance(part, Table):
            _print_table(console, part)
        elif isinstance(part, Verdict):
            _print_text(console, part.text, "bold green" if part.is_good else "bold red")
        else:
            _print_text(console, part)


def _console() -> Console | None:
    """The terminal that stdout is, or None."""
    if not sys.stdout.isatty():
        return None
    try:
        from rich.console import Console
    except ImportError:  # As where only the runtimes of bundles are installed.
        return None
    return Console(highlight=False, markup=False, emoji=False)


def _print_text(console: Console, text: str, style: str | None = None) -> None:
    for line in text.split("\n"):
        label = _LABEL.match(line)
        indent = " " * min(len(label[0]) if label else 0, console.width // 3)
        options: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
        wrapped = textwrap.wrap(line, console.width, subsequent_indent=indent, drop_whitespace=True, **options) or [""]
        for each in wrapped:
            console.print(each, style=style, soft_wrap=True)


def _print_table(console: Console, table: Table) -> None:
    fitted = ((gap, table.widths(console.width, gap)) for gap in (_GAP, 1))
    gap, widths = next((each for each in fitted if each[1]), (0, None))
    if widths is None:
        _print_records(console, table)
        return
    from rich.table import Table as RichTable

    drawn = RichTable(box=None, padding=(0, gap, 0, 0), pad_edge=False, header_style="bold")
    for name, width in zip(table.head, widths, strict=True):
        is_text = name in table.texts
        title = name if is_text or len(name) <= width else "\n".join(name.split())
        drawn.add_column(title, justify="left" if is_text else "right", width=width, no_wrap=not is_text)
    for row in table.rows:
        drawn.add_row(*row)
    console.print(drawn)


def _print_records(console: Console, table: Table) -> None:
    """Prints each row as lines of a name and a value: for a terminal that is too narrow for the columns."""
    width = max(map(len, table.head))
    for row in table.rows:
        console.print(row[0], style="bold", soft_wrap=True)
        for name, cell in zip(table.head[1:], row[1:], strict=True):
            _print_text(console, f"  {name.ljust(width)}  {cell}")


def _pieces(cells: Iterable[str], is_text: bool) -> list[str]:
    """The parts of cells that are not broken: the words of a text, all of a number with its unit."""
    return [piece for cell in cells for piece in (cell.split() if is_text else [cell])]
