"""The command `serve`: serves bundles over HTTP and gRPC from one process."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from keras_transformer.export.commands.console import BACKEND_HELP, port, positive_int, print_status
from keras_transformer.export.errors import ExportError
from keras_transformer.version import install_command

if TYPE_CHECKING:
    from keras_transformer.utils.http.access import Access

EXAMPLES = [
    "bundle",
    "digits=bundle tagger=other --port 8080 --sessions 4",
    "bundle --host 0.0.0.0 --allow-host models.example --grpc-port 8001",
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `keras-transformer serve`."""
    help = "a bundle, or its name for clients and the bundle; without a name it has that of its folder"
    parser.add_argument("bundles", metavar="[NAME=]DIR", nargs="+", help=help)
    parser.add_argument("--backend", help=BACKEND_HELP)
    help = "calls that are computed at once, of each bundle (default: one for each core and --threads)"
    parser.add_argument("--sessions", type=positive_int, metavar="N", help=help)
    parser.add_argument("--threads", type=positive_int, default=1, metavar="N", help="threads of a call (default: 1)")
    help = "largest number of examples, or of texts, that are computed together (default: 32)"
    parser.add_argument("--max-batch-size", type=positive_int, default=32, metavar="N", help=help)
    help = "time that the first request of a batch waits for others (default: 0, as long as every session computes)"
    parser.add_argument("--wait-ms", type=float, default=0.0, metavar="MS", help=help)
    help = "largest number of requests that wait; further ones get status 429 (default: 256)"
    parser.add_argument("--max-waiting", type=positive_int, default=256, metavar="N", help=help)
    help = "largest number of bytes of a body (default: 4194304)"
    parser.add_argument("--max-bytes", type=positive_int, default=4 << 20, metavar="N", help=help)
    help = "largest number of examples of a request (default: 256)"
    parser.add_argument("--max-examples", type=positive_int, default=256, metavar="N", help=help)
    help = (
        "largest number of tokens of a sequence; of several, the squares add up to no more than its own (default: 4096)"
    )
    parser.add_argument("--max-tokens", type=positive_int, default=4096, metavar="N", help=help)
    help = "seconds until a request that is not computed gets status 504 (default: 60)"
    parser.add_argument("--timeout", type=float, default=60.0, metavar="S", help=help)
    help = "port of the Open Inference Protocol over gRPC (default: none)"
    parser.add_argument("--grpc-port", type=port, metavar="N", help=help)
    add_address(parser)


def add_address(parser: argparse.ArgumentParser) -> None:
    """Adds the options of every HTTP server: its address, and who may send requests."""
    help = "address to listen on (default: 127.0.0.1, this machine only)"
    parser.add_argument("--host", default="127.0.0.1", help=help)
    parser.add_argument("--port", type=port, default=8000, metavar="N", help="0 for a free one (default: 8000)")
    help = "name that requests may use for this server (default: those of this machine on 127.0.0.1, otherwise any)"
    parser.add_argument("--allow-host", action="append", default=[], metavar="NAME", help=help)
    help = "page of a browser that may send requests (default: those of this machine on 127.0.0.1, otherwise none)"
    parser.add_argument("--allow-origin", action="append", default=[], metavar="URL", help=help)
    help = "seconds in which the body of a request must arrive (default: 30)"
    parser.add_argument("--read-timeout", type=float, default=30.0, metavar="S", help=help)


def access_of(arguments: argparse.Namespace) -> Access:
    """The `Access` of the options; prints a warning where anybody may send requests."""
    try:
        from keras_transformer.utils.http.access import KEY_VARIABLE, Access, is_loopback
    except ImportError as error:
        raise missing(error, "serve") from None
    try:
        access = Access.of_address(arguments.host, arguments.allow_host, arguments.allow_origin)
    except ValueError as error:
        raise ExportError(f"{KEY_VARIABLE}: {error}") from None
    if access.api_key is None and not is_loopback(arguments.host):
        print_status(f"WARNING: everyone who reaches {arguments.host} may send requests: set {KEY_VARIABLE} to a key")
    return access


def missing(error: ImportError, command: str) -> ExportError:
    """The error of a library that is not installed."""
    package = (error.name or "").partition(".")[0]
    return ExportError(f"{command} needs {package}: {install_command('serve')}")


def run(arguments: argparse.Namespace) -> int:
    """Serves until interrupted, and answers what was accepted; returns the exit status."""
    access = access_of(arguments)
    try:
        from keras_transformer.export.serving.http_application import local_gateway
        from keras_transformer.utils.http.server import run_server
    except ExportError:
        raise
    except ImportError as error:
        raise missing(error, "serve") from None
    from keras_transformer.export.serving.batching import Batching
    from keras_transformer.export.serving.requests import Limits

    batching = Batching(arguments.max_batch_size, arguments.wait_ms, arguments.max_waiting)
    times = arguments.timeout, arguments.read_timeout
    limits = Limits(arguments.max_bytes, arguments.max_examples, *times, max_tokens=arguments.max_tokens)
    options: dict[str, Any] = {"backend": arguments.backend, "sessions": arguments.sessions, "access": access}
    options |= {"num_threads": arguments.threads, "batching": batching, "limits": limits}
    print_status("loading")
    gateway = local_gateway(_named(arguments.bundles), **options)
    beside = None
    if arguments.grpc_port is not None:
        from keras_transformer.export.serving.open_inference.grpc_service import GrpcServer

        beside = GrpcServer(gateway, arguments.host, arguments.grpc_port)
    names = ", ".join(gateway.calls.models)
    on_start = lambda url: print_status(f"serving {names} at {url}")  # noqa: E731
    run_server(gateway.application, arguments.host, arguments.port, beside=beside, on_start=on_start)
    return 0


def _named(words: list[str]) -> dict[str, str]:
    """Dict of name to path."""
    import pathlib

    named: dict[str, str] = {}
    for word in words:
        name, given, path = word.partition("=")
        if not given or pathlib.Path(word).exists():
            name, path = pathlib.Path(word).resolve().name, word
        if not name or name in named:
            raise ExportError(f"bundles need different names: name them, as in NAME={path}")
        named[name] = path
    return named
