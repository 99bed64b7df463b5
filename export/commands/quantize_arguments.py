"""Options of the command line for quantization, and the objects that they describe."""

from __future__ import annotations

import argparse
import zipfile
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from keras_transformer.export.errors import QuantizationError

if TYPE_CHECKING:
    import numpy as np

    from keras_transformer.export.verification.quantized.evaluation import Evaluation

_BATCH = 32
LABELS = "labels"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the quantization options of `export`."""
    group = parser.add_argument_group("quantization")
    add_mode(group)
    add_evaluation(group)
    add = group.add_argument
    add(
        "--min-agreement",
        type=float,
        metavar="SHARE",
        help="fail if a smaller share of the predictions is unchanged, such as 0.99",
    )
    add("--max-loss", type=float, metavar="SHARE", help="fail if the accuracy falls by more, such as 0.005")


def add_mode(parser: argparse._ActionsContainer, default: str | None = None) -> None:
    """Adds the options that describe a `Quantization`."""
    add = parser.add_argument
    known = "fp16, int8, int8_static, weight_int8, weight_int4, gguf or learned"
    known += f" (default: {default})" if default else ""
    known += "" if default else "; several, such as int8,weight_int4, for a bundle each in a folder of its name"
    add("--quantize", metavar="MODE", default=default, help=known)
    add("--calibrate", metavar="FILE", help=".npz with an array for each input, for int8_static")
    add("--ranges", metavar="METHOD", help="how int8_static finds ranges: mse (default), percentile or minmax")
    help = "weights that are not quantized, such as '*/head/*'; repeatable"
    add("--keep-float", action="append", metavar="PATTERN", help=help)
    add("--gguf", metavar="FILE", help="the GGUF file that the model was read from, whose blocks gguf keeps")
    help = "a file of QuantizedWeights.save, whose integers and scales learned keeps"
    add("--weights", metavar="FILE", help=help)
    add("--block-size", type=int, metavar="N", help="weights that share a scale in weight_int4 (default: 32)")


def add_evaluation(parser: argparse._ActionsContainer, required: bool = False) -> None:
    """Adds the option of the evaluation data."""
    help = f".npz with an array for each input and, for a score, '{LABELS}'"
    parser.add_argument("--evaluate", metavar="FILE", required=required, help=help)


def read_arguments(arguments: argparse.Namespace) -> dict[str, Any]:
    """Returns the keyword arguments of `export` that the options describe.

    Args:
        arguments: the parsed options of `add_arguments`, with or without the two bounds.

    Returns:
        dict of "quantize" and "evaluation", each None without its option; "quantize" is a list for several modes.

    Raises:
        QuantizationError: an option lacks another one that it needs, or a file does not contain arrays.
    """
    from keras_transformer.export.quantization.options import FLOAT, Quantization
    from keras_transformer.export.verification.quantized.evaluation import Evaluation

    for option, needed in (
        ("calibrate", "quantize"),
        ("ranges", "calibrate"),
        ("keep_float", "quantize"),
        ("block_size", "quantize"),
        ("gguf", "quantize"),
        ("weights", "quantize"),
        ("evaluate", "quantize"),
        ("min_agreement", "evaluate"),
        ("max_loss", "evaluate"),
    ):
        if getattr(arguments, option, None) is not None and getattr(arguments, needed) is None:
            raise QuantizationError(f"--{option.replace('_', '-')} needs --{needed}")
    if arguments.quantize is None:
        return {"quantize": None, "evaluation": None}
    options: dict[str, Any] = {"keep_float": tuple(arguments.keep_float or ())}
    if arguments.calibrate:
        options["calibration"] = batches_of(read_arrays(arguments.calibrate))
    if arguments.ranges:
        options["ranges"] = arguments.ranges
    if arguments.block_size:
        options["block_size"] = arguments.block_size
    names = [name.strip() for name in arguments.quantize.split(",")]
    files = _files(arguments, names)
    modes = [
        FLOAT if name == FLOAT and len(names) > 1 else Quantization(name, **options, file=files.get(name))
        for name in names
    ]
    return {"quantize": modes if len(modes) > 1 else modes[0], "evaluation": _evaluation(arguments, Evaluation)}


def _files(arguments: argparse.Namespace, names: Sequence[str]) -> dict[str, str | None]:
    """The files of the modes that keep integers."""
    from keras_transformer.export.quantization.options import GGUF, LEARNED

    files: dict[str, str | None] = {}
    for option, mode in (("gguf", GGUF), ("weights", LEARNED)):
        files[mode] = getattr(arguments, option, None)
        if files[mode] is not None and mode not in names:
            raise QuantizationError(f"--{option} is for --quantize {mode}")
    if LEARNED in names and files[LEARNED] is None:
        raise QuantizationError(f"--quantize {LEARNED} needs --weights: a file of QuantizedWeights.save")
    return files


def _evaluation(arguments: argparse.Namespace, cls: type[Evaluation]) -> Evaluation | None:
    if arguments.evaluate is None:
        return None
    arrays = read_arrays(arguments.evaluate)
    labels = arrays.pop(LABELS, None)
    batches = None if labels is None else [each[LABELS] for each in batches_of({LABELS: labels})]
    bounds: dict[str, Any] = {name: getattr(arguments, name, None) for name in ("min_agreement", "max_loss")}
    return cls(batches_of(arrays), batches, **bounds)


def read_arrays(path: str) -> dict[str, np.ndarray]:
    """The arrays of an .npz file, all of the same number of examples.

    Raises:
        QuantizationError: it is another file.
    """
    import numpy as np

    try:
        file = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise QuantizationError(f"'{path}' is not an .npz file of arrays") from error
    if not isinstance(file, np.lib.npyio.NpzFile):
        raise QuantizationError(f"'{path}' contains one unnamed array: an .npz file names an array for each input")
    with file:
        try:
            arrays = {name: file[name] for name in file.files}
        except (ValueError, EOFError, zipfile.BadZipFile) as error:
            raise QuantizationError(f"'{path}' is not an .npz file of arrays") from error
    sizes = {name: len(array) if array.ndim else 0 for name, array in arrays.items()}
    if not arrays or 0 in sizes.values() or len(set(sizes.values())) > 1:
        raise QuantizationError(f"'{path}' must contain arrays of the same number of examples. Received: {sizes}")
    return arrays


def batches_of(arrays: dict[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
    """Batches of the examples of arrays by name."""
    count = len(next(iter(arrays.values())))
    return [
        {name: array[start : start + _BATCH] for name, array in arrays.items()} for start in range(0, count, _BATCH)
    ]
