"""Every error of the exporter with what it means and what to do about it, for the documentation.

    python benchmarks/errors_table.py

Writes docs/errors.md from `export/errors.py`, `export/remedies.py` and the table of operations, `export/operations/`.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import importlib
import inspect
import itertools
import pathlib
import string

from keras_transformer.export.errors import ExportError
from keras_transformer.export.operations.operation import Refused
from keras_transformer.export.operations.table import OPERATIONS
from keras_transformer.export.remedies import Remedy

FILE = pathlib.Path(__file__).parents[1] / "docs" / "errors.md"
HEAD = """# Errors, and what to do about them

The text of an error ends with the address of its entry here. Every remedy is applied in a test, after which the export goes
through. Names in capitals are those of your model. Printed by `python benchmarks/errors_table.py`.

"""
OPERATION_HEAD = """## Operations that a format refuses

An `UnsupportedOpError` for these says more than that the format lacks them. [Operations](operations.md) lists what becomes
of all others.

| operation | format | reason | remedy |
|---|---|---|---|
"""
FUNCTION = f"[a function](#{Remedy.OPERATION.anchor})"


class _Capitals(string.Formatter):
    """Puts the names in braces into a text, in capitals."""

    def get_value(self, key, args, kwargs):
        return key.upper()


def classes(base=ExportError):
    """The public classes of errors, each before those that derive from it."""
    importlib.import_module("keras_transformer.export.serving.requests")  # It has an error of its own.
    found = [] if base.__name__.startswith("_") else [base]
    return found + [each for derived in base.__subclasses__() for each in classes(derived)]


def meaning(error):
    """What the docstring of an error says before its arguments, which are no matter of those who read it."""
    paragraphs = inspect.getdoc(error).split("\n\n")
    prose = itertools.takewhile(lambda each: not each.startswith(("Args:", "Example:")), paragraphs)
    return "\n\n".join(each.replace("\n", " ") for each in prose)


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
    fill = _Capitals().format
    entries = [f"### {each.title}\n\n{each.meaning}\n\n> {fill(each.text)}\n" for each in Remedy]
    kinds = [f"### {each.__name__}\n\n{meaning(each)}\n" for each in classes()]
    operations = OPERATION_HEAD + "\n".join(refusals()) + "\n"
    return HEAD + "\n".join(["## Refusals\n", *entries, operations, "## Classes of errors\n", *kinds])


if __name__ == "__main__":
    FILE.write_text(page())
