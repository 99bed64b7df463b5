"""The command `verify`: verifies a bundle again with its stored probes."""

import argparse

from keras_transformer.export.commands.console import add_json, installed_backends, show_report

EXAMPLES = ["bundle", "bundle --backend onnx", "bundle --tolerance 1e-5"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `keras-transformer verify`."""
    parser.add_argument("bundle", metavar="DIR", help="the bundle")
    parser.add_argument("--backend", action="append", help="only this runtime; repeatable")
    parser.add_argument("--tolerance", type=float, help="largest difference allowed, as a share of each output's scale")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Prints the difference of each file from Keras, and in which runtimes there is none; returns the exit status."""
    from keras_transformer.export.verification.verify import verify_bundle

    backends = arguments.backend or installed_backends(arguments.bundle)
    report = verify_bundle(arguments.bundle, backends, tolerance=arguments.tolerance, progress=True)
    show_report(report, arguments.json)
    return 0
