"""Printing of tables and lines: fitted to a terminal, and plain and complete elsewhere."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from keras_transformer.export.data.tables import Part, Table, Verdict, plain

if TYPE_CHECKING:
    from rich.console import Console

# Spaces between two columns, where the terminal has them.
_GAPS = (2, 1)
# A label at the beginning of a line, and the space after it, under which the rest of a long line is indented.
_LABEL = re.compile(r"\s*\S+\s{2,}|\s*")


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
    fitted = ((gap, table.widths(console.width, gap)) for gap in _GAPS)
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
