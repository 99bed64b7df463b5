"""The command `catalog`: lists the parts of this package, read from its code."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from keras_transformer.export.errors import ExportError
from keras_transformer.export.runtime.libraries import require_keras
from keras_transformer.utils.choice import suggestion

if TYPE_CHECKING:
    from keras_transformer.export.data.tables import Table

EXAMPLES = ["", "mechanisms recurrences", "checkpoints --json"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `keras-transformer catalog`."""
    parser.add_argument("sections", nargs="*", metavar="SECTION", help="only these sections (default: all)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Prints tables, or JSON; returns the exit status."""
    from keras_transformer import catalog
    from keras_transformer.export.commands.importing import quick_imports
    from keras_transformer.export.reporting.progress import Activity
    from keras_transformer.export.reporting.terminal import show
    from keras_transformer.utils.captured_stderr import captured

    for name in arguments.sections:
        if name not in catalog.SECTIONS:
            hint = suggestion(name, catalog.SECTIONS)
            raise ExportError(f"no section {name!r}; valid: {', '.join(catalog.SECTIONS)}{hint}")
    with captured(), quick_imports(), Activity("importing TensorFlow"):
        require_keras("catalog")
        tables = catalog.tables(arguments.sections or None)
    if arguments.json:
        print(json.dumps(tables, indent=2))
        return 0
    for name, rows in tables.items():
        show([f"{name} ({len(rows)})", _table(rows), ""])
    return 0


def _table(rows: list[dict[str, str]]) -> Table:
    """A table of rows, each a dict of column to text."""
    from keras_transformer.export.data.tables import Table

    head = list(rows[0])
    return Table(head, [[row[name] for name in head] for row in rows], texts=head)
