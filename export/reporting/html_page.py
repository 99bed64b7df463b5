"""Parts of the HTML pages of a bundle: self-contained, without scripts, for light and dark screens of any width."""

import html
import pathlib
import re
from collections.abc import Iterable, Sequence

from keras_transformer.export.formats import FORMATS

_STYLE = pathlib.Path(__file__).with_name("page.css")


def page(title: str, body: str, script: str = "") -> str:
    """Returns an HTML page that loads nothing.

    Args:
        title: text, escaped here.
        body: HTML.
        script: JavaScript of the page; "" for none.
    """
    style = _STYLE.read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>\n{style}</style></head>\n"
        f"<body>{body}{f'<script>{script}</script>' if script else ''}</body></html>\n"
    )


def section(title: str, body: str, note: str = "") -> str:
    """Returns a titled part of a page, or "" if it is empty. Title and note are HTML."""
    if not body:
        return ""
    return f"<h2>{title}</h2>{body}" + (f"<p><small>{note}</small></p>" if note else "")


def table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    """Returns a table of HTML cells.

    Args:
        head: titles of the columns; no row of titles if all are empty.
        rows: cells of each row.
        numbers: indices of the columns that are aligned to the right.
    """
    kinds = [' class="n"' if index in numbers else "" for index in range(len(head))]
    titles = "".join(f"<th{kind}>{title}</th>" for title, kind in zip(head, kinds, strict=True))
    lines = ("".join(f"<td{kind}>{cell}</td>" for cell, kind in zip(row, kinds, strict=True)) for row in rows)
    top = f"<tr>{titles}</tr>" if any(head) else ""
    return f'<div class="scroll"><table>{top}{"".join(f"<tr>{line}</tr>" for line in lines)}</table></div>'


def breakable(name: str) -> str:
    """Returns an escaped name that may be broken after its separators."""
    return re.sub(r"([_/.·])", r"\1<wbr>", html.escape(name))


def details(summary: str, body: str, is_open: bool = False) -> str:
    """Returns a part that unfolds. Both texts are HTML."""
    return f"<details{' open' if is_open else ''}><summary>{summary}</summary>{body}</details>"


def format_label(name: str) -> str:
    """Returns the title of a format, in its color."""
    return f'<span class="format" style="--own:{color_of(name)}">{html.escape(format_title(name))}</span>'


def format_title(name: str) -> str:
    """Returns the name of a format as people write it."""
    return FORMATS[name].title or name


def color_of(format: str) -> str:
    """The CSS color of a format: its own of the page's palette, by the order of `FORMATS`."""
    return f"var(--{'abcdef'[list(FORMATS).index(format)]})"


def bar(share: float, format: str) -> str:
    """Returns a bar of a share of the width, 0 to 1, in the color of a format."""
    width = 100 * min(max(share, 0.0), 1.0)
    return f'<span class="bar" style="--own:{color_of(format)}"><span style="width:{width:.1f}%"></span></span>'
