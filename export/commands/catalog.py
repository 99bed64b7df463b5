"""The command `catalog`: lists the parts of this package, read from its code."""

import argparse
import json

from keras_transformer.export.errors import ExportError, suggestion
from keras_transformer.export.runtime.libraries import require_keras

EXAMPLES = ["", "mechanisms recurrences", "checkpoints --json"]
_WIDEST = 60


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `keras-transformer catalog`."""
    parser.add_argument("sections", nargs="*", metavar="SECTION", help="only these sections (default: all)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Prints tables, or JSON; returns the exit status."""
    from keras_transformer import catalog
    from keras_transformer.utils.captured_stderr import captured

    for name in arguments.sections:
        if name not in catalog.SECTIONS:
            hint = suggestion(name, catalog.SECTIONS)
            raise ExportError(f"no section {name!r}; valid: {', '.join(catalog.SECTIONS)}{hint}")
    with captured():
        require_keras("catalog")
        tables = catalog.tables(arguments.sections or None)
    if arguments.json:
        print(json.dumps(tables, indent=2))
        return 0
    for name, rows in tables.items():
        print(f"{name} ({len(rows)})\n{_text(rows)}\n")
    return 0


def _text(rows: list[dict[str, str]]) -> str:
    """A table of rows, each a dict of column to text."""
    names = list(rows[0])
    lines = [names] + [[_short(row[name]) for name in names] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def _short(text: str) -> str:
    return text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"
