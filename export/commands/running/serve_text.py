"""The command `serve-text`: serves a language model over HTTP, with continuous batching."""

import argparse
import pathlib
from typing import Any

from keras_transformer.export.commands.console import BACKEND_HELP, positive_int, print_status
from keras_transformer.export.commands.running.serve import access_of, add_address, missing
from keras_transformer.export.commands.user_modules import add_import_option
from keras_transformer.export.errors import ExportError

EXAMPLES = [
    "model.keras",
    "bundle --port 8080 --max-batch-size 8",
    "model.keras --blocks 2048 --quantize int8 --name shakespeare",
]
# A whole text may take long, and its client can go away; it had no limit before.
_ANSWER_S = 3600.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `keras-transformer serve-text`."""
    parser.add_argument(
        "model", metavar="MODEL", help="a language model: a .keras file, a Hugging Face checkpoint, or a bundle"
    )
    add_import_option(parser)
    parser.add_argument("--name", help="name of the model for clients (default: the name of the file)")
    parser.add_argument("--backend", help=f"of a bundle: {BACKEND_HELP}")
    help = "largest number of requests that run at once (default: 16)"
    parser.add_argument("--max-batch-size", type=positive_int, default=16, metavar="N", help=help)
    help = "largest number of requests that wait; further ones get status 429 (default: 64)"
    parser.add_argument("--max-waiting", type=positive_int, default=64, metavar="N", help=help)
    help = "largest number of requests of one user, whom the field 'user' names; further ones get status 429"
    parser.add_argument("--max-per-user", type=positive_int, metavar="N", help=help)
    help = "blocks of the cache, shared by all requests (default: 512)"
    parser.add_argument("--blocks", type=positive_int, default=512, metavar="N", help=help)
    parser.add_argument(
        "--block-size", type=positive_int, default=16, metavar="N", help="tokens in a block (default: 16)"
    )
    help = "int8: keys and values in 8 bits, a quarter of the memory; the texts may change"
    parser.add_argument("--quantize", choices=["int8"], help=help)
    add_address(parser)


def run(arguments: argparse.Namespace) -> int:
    """Serves until interrupted; returns the exit status."""
    access = access_of(arguments)
    try:
        from keras_transformer.export.serving.http_application import engine_gateway
        from keras_transformer.utils.http.server import run_server
    except ExportError:
        raise
    except ImportError as error:
        raise missing(error, "serve-text") from None
    from keras_transformer.export.serving.requests import Limits
    from keras_transformer.generation import Engine

    engine = Engine(
        _load(arguments),
        max_batch_size=arguments.max_batch_size,
        num_blocks=arguments.blocks,
        block_size=arguments.block_size,
        max_waiting=arguments.max_waiting,
        quantize=arguments.quantize,
        max_per_user=arguments.max_per_user,
    )
    print_status("compiling")
    name = arguments.name or pathlib.Path(arguments.model).resolve().stem
    gateway = engine_gateway(engine, name, Limits(read_s=arguments.read_timeout, timeout_s=_ANSWER_S), access)
    on_start = lambda url: print_status(f"serving {name!r} at {url}")  # noqa: E731
    with engine.warm_up():
        run_server(gateway.application, arguments.host, arguments.port, on_start=on_start)
    return 0


def _load(arguments: argparse.Namespace) -> Any:
    """Loads the language model of a file or a bundle."""
    if pathlib.Path(arguments.model, "manifest.json").is_file():
        from keras_transformer.export.loading.load import load

        model = load(arguments.model, arguments.backend)
    else:
        from keras_transformer.export.commands.model_files import check_model, load_model

        model = load_model(check_model(arguments.model, arguments.imports), imports=arguments.imports)
    if not hasattr(model, "paged_steps"):
        raise ExportError(f"'{arguments.model}' is not a language model: it cannot generate")
    return model
