"""The command `bench`: measures a bundle in each of its runtimes."""

import argparse
import json
import pathlib

from keras_transformer.export.commands.console import installed_backends, positive_int

EXAMPLES = [
    "bundle",
    "bundle --backend onnx --backend tflite --batch 8 --length 128 --threads 2",
    "bundle --size height=224 --size width=224 --json figures.json",
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `keras-transformer bench`."""
    parser.add_argument("bundle", metavar="DIR", help="the bundle")
    parser.add_argument("--backend", action="append", help="only this runtime; repeatable")
    help = "size of an axis; repeatable (default: as in the smallest probe of the bundle)"
    parser.add_argument("--size", action="append", type=_size, default=[], metavar="AXIS=N", help=help)
    parser.add_argument("--batch", type=positive_int, metavar="N", help="--size batch=N")
    parser.add_argument(
        "--length", type=positive_int, metavar="N", help="--size length=N; of a language model the prompt"
    )
    parser.add_argument(
        "--rounds", type=positive_int, default=20, metavar="N", help="rounds of five calls (default: 20)"
    )
    parser.add_argument("--threads", type=positive_int, metavar="N", help="for one call (default: every core)")
    parser.add_argument("--json", metavar="FILE", help="also write the figures as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Prints the table."""
    from keras_transformer.export.reporting.bench import bench_bundle
    from keras_transformer.export.reporting.progress import Activity
    from keras_transformer.export.reporting.terminal import show

    sizes = dict(arguments.size)
    sizes |= {axis: getattr(arguments, axis) for axis in ("batch", "length") if getattr(arguments, axis) is not None}
    if arguments.json:  # Fails before the measuring, if it cannot be written.
        pathlib.Path(arguments.json).touch()
    backends = arguments.backend or installed_backends(arguments.bundle)
    with Activity("starting the runtimes") as activity:
        options = {"progress": activity.set}
        found = bench_bundle(arguments.bundle, backends, sizes, arguments.rounds, arguments.threads, **options)
    show([*found.parts(), found.verdict()])
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(found.to_dict(), indent=1) + "\n")
    return 0


def _size(text: str) -> tuple[str, int]:
    axis, _, size = text.partition("=")
    if not axis or not size:
        raise argparse.ArgumentTypeError(f"{text!r} is not AXIS=N")
    return axis, positive_int(size)
