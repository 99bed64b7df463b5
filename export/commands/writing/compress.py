"""The command `compress`: the best quantized bundle of a model within a budget."""

from __future__ import annotations

import argparse
import pathlib
from typing import TYPE_CHECKING

from keras_transformer.export.commands.user_modules import add_import_option
from keras_transformer.export.errors import QuantizationError

if TYPE_CHECKING:
    import keras
    import numpy as np

    from keras_transformer.export.verification.quantized.evaluation import Evaluation
    from keras_transformer.text import Tokenizer

EXAMPLES = [
    'model.keras --out bundle --data train.npz --evaluate test.npz --budget "20MB"',
    'CHECKPOINT --out bundle --data manual.txt --budget "110MB" --plot sizes.png',
    "model.keras --out bundle --data train.npz --evaluate test.npz --max-loss 0.002",
]
_ROWS, _LENGTH = 32, 256
# Tokens of a text that measure, the last ones; those before them are for rounding.
_HELD_OUT = 4096


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `keras-transformer compress`."""
    add = parser.add_argument
    add("model", metavar="MODEL", help="a .keras file of model.save, or the folder of a Hugging Face checkpoint")
    add_import_option(parser)
    add("--out", required=True, metavar="DIR", help="directory of the bundle; an old bundle is replaced")
    add("--budget", metavar="SIZE", help="bytes of the files of each format, such as 20MB")
    help = "how much worse than that of the float files the metric may be, such as 0.002 of an accuracy; keeps the smallest"
    add("--max-loss", type=float, metavar="X", help=help)
    help = "training data: .npz with an array for each input, or a text for a language model"
    add("--data", required=True, metavar="FILE", help=help)
    help = "held-out data: .npz with 'labels' too for the accuracy, or a text (default: the end of --data)"
    add("--evaluate", metavar="FILE", help=help)
    add("--formats", nargs="+", default=["onnx", "tflite"], metavar="FORMAT", help="default: onnx tflite")
    add("--plot", metavar="FILE", help="write the metric against the size as a picture")
    add("--json", metavar="FILE", help="write all figures as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Reads the data, compresses, and prints the table; returns the exit status."""
    from keras_transformer.export.bundle.writing import check_target
    from keras_transformer.export.commands.model_files import check_model, load_model
    from keras_transformer.export.compression.budget import Budget

    path = check_model(arguments.model, arguments.imports)
    check_target(arguments.out)
    Budget.of(arguments.budget, arguments.max_loss)
    for name in (arguments.data, arguments.evaluate):
        if name is not None and not pathlib.Path(name).is_file():
            raise QuantizationError(f"no such file: '{name}'")
    from keras_transformer.export.compression.compress import compress
    from keras_transformer.export.reporting.terminal import show

    model = load_model(path, imports=arguments.imports)
    data, evaluation = _read(model, arguments.data, arguments.evaluate)
    found = compress(
        model,
        arguments.out,
        arguments.budget,
        data,
        evaluation,
        max_loss=arguments.max_loss,
        formats=arguments.formats,
    )
    show(found.parts())
    if arguments.json:
        found.write(arguments.json)
    if arguments.plot:
        found.plot().savefig(arguments.plot)
    return 0


def _read(model: keras.Model, data: str, held_out: str | None) -> tuple[list[dict[str, np.ndarray]], Evaluation]:
    """The batches for rounding, and the `Evaluation`."""
    if (data.endswith(".npz")) != ((held_out or data).endswith(".npz")):
        raise QuantizationError("--data and --evaluate must both be .npz files, or both texts")
    return _from_arrays(data, held_out) if data.endswith(".npz") else _from_texts(model, data, held_out)


def _from_arrays(data: str, held_out: str | None) -> tuple[list[dict[str, np.ndarray]], Evaluation]:
    from keras_transformer.export.commands.quantize_arguments import LABELS, batches_of, read_arrays
    from keras_transformer.export.verification.quantized.evaluation import Evaluation

    arrays = read_arrays(data)
    if held_out is None:
        half = len(next(iter(arrays.values()))) // 2
        others = {name: each[half:] for name, each in arrays.items()}
        arrays = {name: each[:half] for name, each in arrays.items()}
    else:
        others = read_arrays(held_out)
    arrays.pop(LABELS, None)
    labels = others.pop(LABELS, None)
    wanted = None if labels is None else [each[LABELS] for each in batches_of({LABELS: labels})]
    return batches_of(arrays), Evaluation(batches_of(others), wanted)


def _from_texts(model: keras.Model, data: str, held_out: str | None) -> tuple[list[dict[str, np.ndarray]], Evaluation]:
    import numpy as np

    from keras_transformer.export.verification.quantized.evaluation import Evaluation

    tokenizer = getattr(model, "tokenizer", None)
    if tokenizer is None:
        raise QuantizationError("a text needs a model with a tokenizer: pass .npz files")
    tokens = _tokens(tokenizer, data)
    if held_out is None:
        others, tokens = tokens[-_HELD_OUT:], tokens[:-_HELD_OUT]
    else:
        others = _tokens(tokenizer, held_out)[:_HELD_OUT]
    length = min(_LENGTH, model.max_length or _LENGTH)
    count = min(len(tokens) // length, _ROWS)
    if count == 0:
        raise QuantizationError(f"'{data}' has too few tokens: {length} at least, besides those that measure")
    rows = np.asarray(tokens[: count * length], "int32").reshape(count, length)
    mask = np.ones((1, length), "bool")
    return [{"token_ids": row[None], "padding_mask": mask} for row in rows], Evaluation(text=[others])


def _tokens(tokenizer: Tokenizer, path: str) -> list[int]:
    return list(tokenizer.encode(pathlib.Path(path).read_text(encoding="utf-8", errors="replace")))
