"""The command `sensitivity`: the accuracy that each weight of a bundle loses when it is quantized."""

from __future__ import annotations

import argparse
import json
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from keras_transformer.export.commands import quantize_arguments
from keras_transformer.export.commands.console import positive_int, print_status

if TYPE_CHECKING:
    from keras_transformer.export.compression.layer_sensitivity import Sensitivity
    from keras_transformer.export.data.tables import Part

EXAMPLES = [
    "bundle --evaluate test.npz",
    "bundle --evaluate test.npz --quantize weight_int4 --keep-float '*/head/*' --top 10 --json figures.json",
]
_COLUMNS = ("left in float", "agreement", "score", "size", "gain")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `keras-transformer sensitivity`."""
    parser.add_argument("bundle", metavar="DIR", help="a float bundle with ONNX files; it is not changed")
    quantize_arguments.add_evaluation(parser, required=True)
    quantize_arguments.add_mode(parser, default="int8")
    help = "show only the N weights with the largest loss (default: all)"
    parser.add_argument("--top", type=positive_int, metavar="N", help=help)
    parser.add_argument("--json", metavar="FILE", help="also write the figures of all weights as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Prints the table."""
    from keras_transformer.export.compression.layer_sensitivity import sensitivity
    from keras_transformer.export.reporting.terminal import show

    mode, evaluation = quantize_arguments.read_mode(arguments), quantize_arguments.evaluation_of(arguments.evaluate)
    if arguments.json:  # Fails before the measuring, if it cannot be written.
        pathlib.Path(arguments.json).touch()
    found = sensitivity(arguments.bundle, mode, evaluation, progress=print_status)
    show(parts(arguments.bundle, mode.mode, found, arguments.top))
    if arguments.json:
        record = {"bundle": arguments.bundle, "quantize": mode.mode, "rows": [each._asdict() for each in found]}
        pathlib.Path(arguments.json).write_text(json.dumps(record, indent=1) + "\n")
    return 0


def parts(bundle: str, mode: str, found: Sequence[Sensitivity], top: int | None = None) -> list[Part]:
    """Returns the figures as lines and a table.

    Args:
        bundle: path, for the head.
        mode: name of the mode, for the head.
        found: list of `Sensitivity`, as `sensitivity` returns it.
        top: int or None: how many weights to show; all when None.
    """
    from keras_transformer.export.compression.layer_sensitivity import ALL
    from keras_transformer.export.data.report import readable_size
    from keras_transformer.export.data.tables import Table

    whole = found[0]
    gained = "agreement" if whole.score is None else "score"
    rows = []
    for each in found[: None if top is None else top + 1]:
        gain = getattr(each, gained) - getattr(whole, gained)
        size = readable_size(each.size)
        rows.append((each.weight or ALL, _cell(each.agreement), _cell(each.score), size, f"{gain:+.4f}"))
    head = f"{bundle}, {mode}" + ("" if whole.score is None else f", score in float {whole.score_float:.4f}")
    table = Table(_COLUMNS, rows, texts=_COLUMNS[:1])
    return [head, "", table, "", f"gain: in {gained}, by leaving one weight in float"]


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
