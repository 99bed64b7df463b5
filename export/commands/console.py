"""What commands share: types of arguments, and status lines on stderr."""

import argparse
import json
import sys
from typing import Protocol

from keras_transformer.export.bundle.manifest import read_manifest
from keras_transformer.export.data.tables import Part, Verdict
from keras_transformer.export.formats import BACKENDS, get_format
from keras_transformer.utils.types import JsonObject, Path

BACKEND_HELP = f"{', '.join(BACKENDS)} (default: the first that the bundle has and whose runtime is installed)"


def port(text: str) -> int:
    """Type of an argument: a port, of which 0 is a free one."""
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 0 to 65535")
    return int(text)


class Shown(Protocol):
    """A report of a command."""

    def parts(self) -> list[Part]:
        """What is printed."""
        ...

    def verdict(self) -> Verdict:
        """The last line."""
        ...

    def to_dict(self) -> JsonObject:
        """The report as dicts, lists and numbers."""
        ...


def positive_int(text: str) -> int:
    """Type of an argument: an integer of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive integer")
    return int(text)


def add_json(parser: argparse.ArgumentParser) -> None:
    """Adds the option of a command whose result is a report."""
    parser.add_argument("--json", action="store_true", help="print the report as JSON on stdout")


def show_report(report: Shown, as_json: bool) -> None:
    """Prints a report and its verdict, or its JSON, on stdout."""
    from keras_transformer.export.reporting.terminal import show

    if as_json:
        print(json.dumps(report.to_dict(), indent=2))
    else:
        show([*report.parts(), report.verdict()])


def print_status(line: str) -> None:
    """Prints a progress line on stderr; stdout is for results."""
    print(line, file=sys.stderr, flush=True)


def installed_backends(bundle: Path) -> list[str]:
    """Returns the formats of a bundle whose runtimes are installed, and says of the others on stderr that they are not run.

    All formats if no runtime is installed: the error of the first says how to install it.
    """
    libraries = {name: get_format(name).library for name in read_manifest(bundle).artifacts}
    installed = [name for name, library in libraries.items() if library.is_installed]
    if not installed:
        return list(libraries)
    for name, library in libraries.items():
        if name not in installed:
            print_status(f"{name} is not run: {library.distribution} is not installed")
    return installed
