"""The command `serve-text`: serves a language model over HTTP, with continuous batching."""

import argparse
import pathlib
from typing import Any

from keras_transformer.export.commands.console import BACKEND_HELP, positive_int, print_status
from keras_transformer.export.errors import ExportError
from keras_transformer.export.formats import DEFAULT_BACKEND
from keras_transformer.version import install_command

EXAMPLES = [
    "model.keras",
    "bundle --port 8080 --max-batch-size 8",
    "model.keras --blocks 2048 --quantize int8 --name shakespeare",
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `keras-transformer serve-text`."""
    parser.add_argument(
        "model", metavar="MODEL", help="a language model: a .keras file, a Hugging Face checkpoint, or a bundle"
    )
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1, this machine only)"
    )
    parser.add_argument("--port", type=positive_int, default=8000, metavar="N", help="default: 8000")
    parser.add_argument("--name", help="name of the model for clients (default: the name of the file)")
    parser.add_argument("--backend", default=DEFAULT_BACKEND, help=f"of a bundle: {BACKEND_HELP}")
    help = "largest number of requests that run at once (default: 16)"
    parser.add_argument("--max-batch-size", type=positive_int, default=16, metavar="N", help=help)
    help = "largest number of requests that wait; further ones get status 429 (default: 64)"
    parser.add_argument("--max-waiting", type=positive_int, default=64, metavar="N", help=help)
    help = "blocks of the cache, shared by all requests (default: 512)"
    parser.add_argument("--blocks", type=positive_int, default=512, metavar="N", help=help)
    parser.add_argument(
        "--block-size", type=positive_int, default=16, metavar="N", help="tokens in a block (default: 16)"
    )
    help = "int8: keys and values in 8 bits, a quarter of the memory; the texts may change"
    parser.add_argument("--quantize", choices=["int8"], help=help)


def run(arguments: argparse.Namespace) -> int:
    """Serves until interrupted; returns the exit status."""
    try:
        from keras_transformer.generation.engine.http import serve
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        raise ExportError(f"serve-text needs {package}: {install_command('serve')}") from None
    from keras_transformer.generation import Engine

    engine = Engine(
        _load(arguments),
        max_batch_size=arguments.max_batch_size,
        num_blocks=arguments.blocks,
        block_size=arguments.block_size,
        max_waiting=arguments.max_waiting,
        quantize=arguments.quantize,
    )
    print_status("compiling")
    name = arguments.name or pathlib.Path(arguments.model).resolve().stem
    with engine.warm_up():
        print_status(f"serving {name!r} at http://{arguments.host}:{arguments.port}")
        serve(engine, name, arguments.host, arguments.port)
    return 0


def _load(arguments: argparse.Namespace) -> Any:
    """Loads the language model of a file or a bundle."""
    if pathlib.Path(arguments.model, "manifest.json").is_file():
        from keras_transformer.export.runtime.loading import load

        model = load(arguments.model, arguments.backend)
    else:
        from keras_transformer.export.commands.model_files import check_model, load_model

        model = load_model(check_model(arguments.model))
    if not hasattr(model, "paged_steps"):
        raise ExportError(f"'{arguments.model}' is not a language model: it cannot generate")
    return model
