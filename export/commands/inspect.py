"""The command `inspect`: what a bundle holds."""

EXAMPLES = ["bundle"]


def add_arguments(parser):
    """Adds the options of `keras-transformer inspect`."""
    parser.add_argument("bundle", metavar="DIR", help="the bundle")


def run(arguments):
    """Prints it; returns the exit status."""
    from keras_transformer.export.reporting.inspection import inspect_bundle

    print(inspect_bundle(arguments.bundle))
    return 0
