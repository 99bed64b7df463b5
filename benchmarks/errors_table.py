"""Every error of the exporter with what it means and what to do about it, for the documentation.

    python benchmarks/errors_table.py

Writes docs/errors.md from `export/errors/`, `export/remedies.py` and the table of operations, `export/operations/`.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import pathlib

from keras_transformer.export.commands.explain import classes, remedies
from keras_transformer.export.operations.operation import Refused
from keras_transformer.export.operations.table import OPERATIONS
from keras_transformer.export.remedies import Remedy

FILE = pathlib.Path(__file__).parents[1] / "docs" / "errors.md"
HEAD = """# Errors, and what to do about them

The text of an error ends with a command that prints its entry here, such as `keras-transformer explain a-complex-output`.
Every remedy is applied in a test, after which the export goes through. Names in capitals are those of your model. Printed by
`python benchmarks/errors_table.py`.

"""
OPERATION_HEAD = """## Operations that a format refuses

An `UnsupportedOpError` for these says more than that the format lacks them. [Operations](operations.md) lists what becomes
of all others.

| operation | format | reason | remedy |
|---|---|---|---|
"""
FUNCTION = f"[a function](#{Remedy.OPERATION.anchor})"


def refusals():
    """The rows of the operations that the table refuses, or for which it has a remedy where a converter does."""
    rows = {}
    for name, each in sorted(OPERATIONS.items()):
        lowerings = [(format, found) for format in each.lowerings for found in each.lowerings_in(format)]
        found = [(format, how.reason, how.remedy) for format, how in lowerings if isinstance(how, Refused)]
        found += [(format, "", remedy) for format, remedy in each.remedies.items()]
        for key in found:
            rows.setdefault(key, []).append(name)
    for (format, reason, remedy), names in rows.items():
        yield f"| {', '.join(names)} | {format} | {reason} | {remedy or FUNCTION} |"


def page():
    """The text of docs/errors.md."""
    operations = OPERATION_HEAD + "\n".join(refusals()) + "\n"
    return HEAD + "\n".join(
        ["## Refusals\n", *remedies().values(), operations, "## Classes of errors\n", *classes().values()]
    )


if __name__ == "__main__":
    FILE.write_text(page())
