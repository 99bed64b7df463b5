"""The command `serving`: writes a bundle for TensorFlow Serving or Triton Inference Server."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from keras_transformer.export.errors import ExportError

if TYPE_CHECKING:
    from keras_transformer.export.serving.batching import Batching

EXAMPLES = ["bundle --out served", "bundle --out served --version 2", "bundle --for triton --out repository"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `keras-transformer serving`."""
    parser.add_argument("bundle", metavar="DIR", help="the bundle")
    parser.add_argument(
        "--out", required=True, metavar="DIR", help="directory of the model, which contains its versions"
    )
    parser.add_argument("--version", dest="number", type=int, default=1, metavar="N", help="default: 1")
    help = "the signature that serving_default is an alias of (default: the first of the bundle)"
    parser.add_argument("--default", metavar="NAME", help=help)
    help = "tensorflow (default) or triton"
    parser.add_argument("--for", dest="server", choices=("tensorflow", "triton"), default="tensorflow", help=help)
    help = "largest number of examples in a batch (default: 32)"
    parser.add_argument("--max-batch-size", type=int, metavar="N", help=help)
    help = "time that the first request of a batch waits for others (default: 2)"
    parser.add_argument("--wait-ms", type=float, metavar="MS", help=help)
    help = "triton: name of the model for clients (default: the name of the bundle's folder)"
    parser.add_argument("--name", metavar="NAME", help=help)
    help = "triton: largest number of tokens of a text whose cache the server keeps"
    parser.add_argument("--max-length", type=int, metavar="N", help=help)


def run(arguments: argparse.Namespace) -> int:
    """Writes the version and prints its path; returns the exit status."""
    batching = _batching(arguments)
    if arguments.server == "triton":
        from keras_transformer.export.engines.triton.model_repository import write_triton

        options = {"name": arguments.name, "max_length": arguments.max_length, "batching": batching}
        for path in write_triton(arguments.bundle, arguments.out, version=arguments.number, **options):
            print(path)
        return 0
    from keras_transformer.export.engines.tensorflow_serving.version_directory import write_serving

    print(write_serving(arguments.bundle, arguments.out, arguments.number, arguments.default, batching))
    return 0


def _batching(arguments: argparse.Namespace) -> Batching | None:
    """The `Batching` of the options, or None without any. Options of the other server raise `ExportError`."""
    from keras_transformer.export.serving.batching import Batching

    if arguments.server == "triton" and arguments.default is not None:
        raise ExportError("--default is for tensorflow: Triton has a model for each signature")
    if arguments.server != "triton" and (arguments.name, arguments.max_length) != (None, None):
        raise ExportError("--name and --max-length are for triton")
    given = {"max_batch_size": arguments.max_batch_size, "wait_ms": arguments.wait_ms}
    given = {name: value for name, value in given.items() if value is not None}
    return Batching(**given) if given else None
