"""The command `verify`: a bundle proven again, from the probes kept in it."""

EXAMPLES = ["bundle", "bundle --backend onnx"]


def add_arguments(parser):
    """Adds the options of `keras-transformer verify`."""
    parser.add_argument("bundle", metavar="DIR", help="the bundle")
    parser.add_argument("--backend", action="append", help="only this runtime; may be given more than once")


def run(arguments):
    """Prints how far each file is from Keras; returns the exit status."""
    from keras_transformer.export.verification.verify import verify_bundle

    print(verify_bundle(arguments.bundle, arguments.backend))
    return 0
