"""The command `inspect`: shows the contents of a bundle or of one file, or the operators that ONNX Runtime needs for it."""

import argparse
import json
import pathlib

from keras_transformer.export.errors import ExportError

EXAMPLES = [
    "bundle",
    "bundle --json",
    "model.tflite",
    "model.keras",
    "bundle --operators > required_operators.config",
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `keras-transformer inspect`."""
    parser.add_argument("bundle", metavar="DIR|FILE", help="the bundle; or a .tflite, .onnx or .keras file")
    help = "print the configuration file of a reduced build of ONNX Runtime instead"
    parser.add_argument("--operators", action="store_true", help=help)
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Prints the contents; returns the exit status."""
    path = pathlib.Path(arguments.bundle)
    if arguments.operators and path.is_file() and path.suffix != ".onnx":
        raise ExportError(f"--operators is for a bundle, or an .onnx file, not '{path}'")
    if arguments.operators:
        from keras_transformer.export.onnx.required_operators import required_operators

        print(required_operators(arguments.bundle), end="")
        return 0
    from keras_transformer.export.reporting.file_inspection import inspect_file
    from keras_transformer.export.reporting.inspection import inspected, record_of
    from keras_transformer.export.reporting.progress import Activity
    from keras_transformer.export.reporting.terminal import show

    with Activity(f"reading the graphs of {path}"):
        if path.is_file():
            found = inspect_file(path)
            parts, record = found.parts(), found.to_dict()
        else:
            parts, record = ([], record_of(path)) if arguments.json else (inspected(path), {})
    if arguments.json:
        print(json.dumps(record, indent=2))
    else:
        show(parts)
    return 0
