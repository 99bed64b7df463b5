"""The command `bench`: how fast a bundle is in each of its runtimes."""

import argparse
import json
import pathlib

from keras_transformer.export.commands.words import positive

EXAMPLES = [
    "bundle",
    "bundle --backend onnx --backend tflite --batch 8 --length 128 --threads 2",
    "bundle --size height=224 --size width=224 --json figures.json",
]


def add_arguments(parser):
    """Adds the options of `keras-transformer bench`."""
    parser.add_argument("bundle", metavar="DIR", help="the bundle")
    parser.add_argument("--backend", action="append", help="only this runtime; may be given more than once")
    help = "size of an axis; may be given more than once (default: as in the bundle's smallest probe)"
    parser.add_argument("--size", action="append", type=_size, default=[], metavar="AXIS=N", help=help)
    parser.add_argument("--batch", type=positive, metavar="N", help="--size batch=N")
    parser.add_argument("--length", type=positive, metavar="N", help="--size length=N; of a language model the prompt")
    parser.add_argument("--rounds", type=positive, default=20, metavar="N", help="turns of five calls (default: 20)")
    parser.add_argument("--threads", type=positive, metavar="N", help="for one call (default: every core)")
    parser.add_argument("--json", metavar="FILE", help="also write the figures as JSON")


def run(arguments):
    """Prints the table."""
    from keras_transformer.export.reporting.bench import bench_bundle

    sizes = dict(arguments.size)
    sizes |= {axis: getattr(arguments, axis) for axis in ("batch", "length") if getattr(arguments, axis) is not None}
    if arguments.json:  # What can be wrong is looked at before the measuring.
        pathlib.Path(arguments.json).touch()
    found = bench_bundle(arguments.bundle, arguments.backend, sizes, arguments.rounds, arguments.threads)
    print(found)
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(found.to_dict(), indent=1) + "\n")
    return 0


def _size(text):
    axis, _, size = text.partition("=")
    if not axis or not size:
        raise argparse.ArgumentTypeError(f"{text!r} is not AXIS=N")
    return axis, positive(size)
