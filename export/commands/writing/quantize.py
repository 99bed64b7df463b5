"""The command `quantize`: writes quantized copies of a float bundle."""

import argparse

from keras_transformer.export.commands import quantize_arguments
from keras_transformer.export.commands.console import add_json, show_report
from keras_transformer.export.errors import QuantizationError

EXAMPLES = [
    "bundle --out bundle_int8 --quantize int8",
    "bundle --out bundles --quantize int8,weight_int4",
    "bundle --out bundle_int4 --quantize weight_int4 --evaluate test.npz --max-loss 0.005",
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `keras-transformer quantize`."""
    parser.add_argument("bundle", metavar="DIR", help="a bundle with float ONNX or TFLite files; it is not changed")
    help = "directory of the quantized bundle; an old bundle is replaced"
    parser.add_argument("--out", required=True, metavar="DIR", help=help)
    quantize_arguments.add_arguments(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Writes the bundle and prints its report; returns the exit status."""
    from keras_transformer.export.quantization.options import MODES
    from keras_transformer.export.writing.quantize_bundle import quantize

    mode = quantize_arguments.read_quantize(arguments)
    if mode is None:
        raise QuantizationError(f"--quantize must name a mode: {', '.join(MODES)}")
    evaluation = quantize_arguments.read_evaluation(arguments)
    report = quantize(arguments.bundle, arguments.out, mode, evaluation=evaluation)
    show_report(report, arguments.json)
    return 0
