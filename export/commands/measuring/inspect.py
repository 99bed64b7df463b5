"""The command `inspect`: shows the contents of a bundle, or the operators that a build of ONNX Runtime needs for it."""

import argparse

EXAMPLES = ["bundle", "bundle --operators > required_operators.config"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `keras-transformer inspect`."""
    parser.add_argument("bundle", metavar="DIR", help="the bundle")
    help = "print the configuration file of a reduced build of ONNX Runtime instead"
    parser.add_argument("--operators", action="store_true", help=help)


def run(arguments: argparse.Namespace) -> int:
    """Prints the contents; returns the exit status."""
    if arguments.operators:
        from keras_transformer.export.onnx.required_operators import required_operators

        print(required_operators(arguments.bundle), end="")
        return 0
    from keras_transformer.export.reporting.inspection import inspected
    from keras_transformer.export.reporting.progress import Activity
    from keras_transformer.export.reporting.terminal import show

    with Activity(f"reading the graphs of {arguments.bundle}"):
        parts = inspected(arguments.bundle)
    show(parts)
    return 0
