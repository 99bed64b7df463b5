"""The command `explain`: prints what an error means and what to do about it, as docs/errors.md has it."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import inspect
import itertools
import string
from collections.abc import Mapping, Sequence

from keras_transformer.export.errors import ExportError
from keras_transformer.export.remedies import Remedy
from keras_transformer.utils.choice import suggestion

EXAMPLES = ["a-complex-output", "ParityError", ""]
# Errors of their own have modules whose libraries may not be installed.
_OTHERS = ("keras_transformer.export.serving.requests",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `keras-transformer explain`."""
    help = "the word at the end of the text of an error, or the name of its class (default: list them)"
    parser.add_argument("entry", nargs="?", metavar="ENTRY", help=help)


def run(arguments: argparse.Namespace) -> int:
    """Prints one entry, or the names of all; returns the exit status."""
    found = {**remedies(), **classes()}
    if arguments.entry is None:
        print("\n".join(found))
        return 0
    name = arguments.entry.lower().lstrip("#")
    if name not in found:
        raise ExportError(f"no entry {arguments.entry!r}{suggestion(name, found)}")
    print(found[name].strip())
    return 0


def remedies() -> dict[str, str]:
    """The entries of the remedies in Markdown, by their anchors."""
    return {each.anchor: _of_remedy(each) for each in Remedy}


def classes() -> dict[str, str]:
    """The entries of the public classes of errors in Markdown, by their anchors; each before those that derive from it."""
    for name in _OTHERS:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    return {each.__name__.lower(): f"### {each.__name__}\n\n{_meaning(each)}\n" for each in _public(ExportError)}


def _of_remedy(remedy: Remedy) -> str:
    example = f"\n```python\n{remedy.example}```\n" if remedy.example else ""
    return f"### {remedy.title}\n\n{remedy.meaning}\n\n> {_Capitals().format(remedy.text)}\n{example}"


def _public(base: type[ExportError]) -> list[type[ExportError]]:
    """An error, if it is no base alone, and those that derive from it."""
    found = [] if base.__name__.startswith("_") else [base]
    return found + [each for derived in base.__subclasses__() for each in _public(derived)]


def _meaning(error: type[ExportError]) -> str:
    """What the docstring of an error says before its arguments, which are no matter of those who read it."""
    paragraphs = (inspect.getdoc(error) or "").split("\n\n")
    prose = itertools.takewhile(lambda each: not each.startswith(("Args:", "Example:")), paragraphs)
    return "\n\n".join(each.replace("\n", " ") for each in prose)


class _Capitals(string.Formatter):
    """Puts the names in braces into a text, in capitals."""

    def get_value(self, key: int | str, args: Sequence[object], kwargs: Mapping[str, object]) -> str:
        return str(key).upper()
