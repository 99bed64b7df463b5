"""What the commands share: how a word of the command line is read, and how one speaks to the user."""

import argparse
import sys

from keras_transformer.export.formats import DEFAULT_BACKEND, FORMATS

BACKEND_HELP = ", ".join(f"{name} (default)" if name == DEFAULT_BACKEND else name for name in FORMATS)


def positive(text):
    """A whole number of at least 1, of a word of the command line."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)


def say(line):
    """A line on how far it is, on stderr: stdout is for results."""
    print(line, file=sys.stderr, flush=True)
