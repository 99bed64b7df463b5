"""The command `view`: a page in the browser with the weights of bundles by layer, and attention over an input."""

from __future__ import annotations

import argparse
import pathlib
import webbrowser
from typing import TYPE_CHECKING

from keras_transformer.export.commands import quantize_arguments
from keras_transformer.export.commands.console import port, print_status
from keras_transformer.export.errors import ExportError
from keras_transformer.utils.types import JsonObject

if TYPE_CHECKING:
    from keras_transformer.export.viewing.gains import Gains

EXAMPLES = [
    "bundle",
    "bundle bundle_int8 --output view.html",
    "bundle --evaluate test.npz --quantize weight_int4",
    'bundle --model model.keras --input "A text"',
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `keras-transformer view`."""
    parser.add_argument(
        "bundles", nargs="+", metavar="DIR", help="a bundle, or several of one model: columns to compare"
    )
    parser.add_argument("--output", metavar="FILE", help="write the page as an HTML file instead of serving it")
    parser.add_argument("--port", type=port, default=0, metavar="N", help="port on 127.0.0.1 (default: a free one)")
    parser.add_argument("--no-browser", action="store_true", help="print the address, but open no browser")
    help = "what each weight costs in accuracy: the file of the command sensitivity --json"
    parser.add_argument("--sensitivity", metavar="FILE", help=help)
    parser.add_argument("--model", metavar="FILE", help="the .keras file of the bundle, to compute attention with")
    help = "with --model: a text, if the bundle has a tokenizer, or an .npy or .npz file, whose first example is used"
    parser.add_argument("--input", metavar="TEXT", help=help)
    help = ".npz with an array for each input and 'labels': measures what each weight costs now, as sensitivity does"
    parser.add_argument("--evaluate", metavar="FILE", help=help)
    help = "the quantization for --evaluate: int8 (default), weight_int8, weight_int4 or fp16"
    parser.add_argument("--quantize", metavar="MODE", default="int8", help=help)
    parser.set_defaults(calibrate=None, ranges=None, activation_bits=None)
    parser.set_defaults(keep_float=None, gguf=None, weights=None, block_size=None)


def run(arguments: argparse.Namespace) -> int:
    """Writes the page, or serves it until it is interrupted; returns the exit status."""
    from keras_transformer.export.viewing.page_server import LOOPBACK, page_server, serve_until_interrupted
    from keras_transformer.export.viewing.view_page import view_page

    if (arguments.model is None) != (arguments.input is None):
        raise ExportError("attention needs both --model and --input")
    if arguments.sensitivity and arguments.evaluate:
        raise ExportError("pass --sensitivity or --evaluate, not both")
    text = view_page(arguments.bundles, _gains(arguments), _attention(arguments))
    if arguments.output:
        pathlib.Path(arguments.output).write_text(text, encoding="utf-8")
        print(arguments.output)
        return 0
    with page_server(text, arguments.port) as server:
        address = f"http://{LOOPBACK}:{server.server_port}/"
        print(address, flush=True)
        print_status("Ctrl+C ends it")
        if not arguments.no_browser:
            webbrowser.open(address)
        serve_until_interrupted(server)
    return 0


def _gains(arguments: argparse.Namespace) -> Gains | None:
    from keras_transformer.export.viewing.gains import gains_of, read_gains

    if arguments.sensitivity:
        return read_gains(arguments.sensitivity)
    if not arguments.evaluate:
        return None
    from keras_transformer.export.compression.layer_sensitivity import sensitivity

    mode, evaluation = quantize_arguments.read_mode(arguments), quantize_arguments.evaluation_of(arguments.evaluate)
    found = sensitivity(arguments.bundles[0], mode, evaluation, progress=print_status)
    return gains_of([each._asdict() for each in found], mode.mode)


def _attention(arguments: argparse.Namespace) -> JsonObject | None:
    if arguments.model is None:
        return None
    from keras_transformer.export.bundle.manifest import read_manifest
    from keras_transformer.export.bundle.tokenizers import read_tokenizer
    from keras_transformer.export.viewing.attention import attention_record

    directory = pathlib.Path(arguments.bundles[0])
    return attention_record(arguments.model, arguments.input, read_tokenizer(directory, read_manifest(directory)))
