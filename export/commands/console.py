"""What commands share: types of arguments, and status lines on stderr."""

import argparse
import sys

from keras_transformer.export.bundle.manifest import read_manifest
from keras_transformer.export.formats import BACKENDS, get_format
from keras_transformer.utils.types import Path

BACKEND_HELP = f"{', '.join(BACKENDS)} (default: the first that the bundle has and whose runtime is installed)"


def positive_int(text: str) -> int:
    """Type of an argument: an integer of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive integer")
    return int(text)


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
