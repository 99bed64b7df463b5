"""The command `inspect`: shows the contents of a bundle."""

import argparse

EXAMPLES = ["bundle"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `keras-transformer inspect`."""
    parser.add_argument("bundle", metavar="DIR", help="the bundle")


def run(arguments: argparse.Namespace) -> int:
    """Prints the contents; returns the exit status."""
    from keras_transformer.export.reporting.inspection import inspect_bundle

    print(inspect_bundle(arguments.bundle))
    return 0
