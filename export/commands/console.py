"""What commands share: types of arguments, and status lines on stderr."""

import argparse
import sys

from keras_transformer.export.formats import DEFAULT_BACKEND, FORMATS

BACKEND_HELP = ", ".join(f"{name} (default)" if name == DEFAULT_BACKEND else name for name in FORMATS)


def positive_int(text: str) -> int:
    """Type of an argument: an integer of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive integer")
    return int(text)


def print_status(line: str) -> None:
    """Prints a progress line on stderr; stdout is for results."""
    print(line, file=sys.stderr, flush=True)
