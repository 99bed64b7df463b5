"""Options of the command line for quantization, and the objects that they describe."""

from __future__ import annotations

import argparse
import zipfile
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from keras_transformer.export.errors import QuantizationError
from keras_transformer.utils.choice import nearest_path

if TYPE_CHECKING:
    import numpy as np

    from keras_transformer.export.quantization.options import Quantization
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
    """Adds the options that describe a mode of quantization."""
    add = parser.add_argument
    known = "fp16, int8, int8_static, full_int8, weight_int8, weight_int4, gguf or learned"
    known += f" (default: {default})" if default else ""
    known += "" if default else "; several, such as int8,weight_int4, for a bundle each in a folder of its name"
    add("--quantize", metavar="MODE", default=default, help=known)
    add("--calibrate", metavar="FILE", help=".npz with an array for each input, for int8_static, full_int8")
    add(
        "--ranges",
        metavar="METHOD",
        help="how these find ranges: mse (default), percentile, entropy, minmax or moving_average",
    )
    add("--activation-bits", type=int, choices=(8, 16), help="bits of their activations (default: 8)")
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


def read_quantize(arguments: argparse.Namespace) -> Quantization | list[str | Quantization] | None:
    """The argument `quantize` of `export` that the options describe: a list for several modes.

    Args:
        arguments: the parsed options of `add_arguments`, with or without the two bounds.

    Raises:
        QuantizationError: an option lacks another one that it needs, or a file does not contain arrays.
    """
    from keras_transformer.export.quantization.options import CLASSES, FLOAT
    from keras_transformer.export.quantization.precisions import parsed

    for option, needed in (
        ("calibrate", "quantize"),
        ("ranges", "calibrate"),
        ("activation_bits", "calibrate"),
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
        return None
    names = [name.strip() for name in arguments.quantize.split(",")]
    own = _own_options(arguments, names)
    keep_float = tuple(arguments.keep_float or ())
    modes = [
        CLASSES[name](keep_float=keep_float, **own.get(name, {})) if name in CLASSES else parsed(name) for name in names
    ]
    return [each or FLOAT for each in modes] if len(modes) > 1 else modes[0]


def read_mode(arguments: argparse.Namespace) -> Quantization:
    """`read_quantize` where there must be one mode.

    Raises:
        QuantizationError: there are several, or none; see `read_quantize`.
    """
    found = read_quantize(arguments)
    if found is None or isinstance(found, list):
        raise QuantizationError(f"--quantize takes one mode here. Received: {arguments.quantize}")
    return found


def _own_options(arguments: argparse.Namespace, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The options that single modes have, by mode and argument."""
    from keras_transformer.export.quantization.options import GGUF, LEARNED, FullInt8, Int8Static, WeightInt4

    of_activations = {"ranges": arguments.ranges, "activation_bits": arguments.activation_bits}
    given: dict[str, dict[str, Any]] = {
        Int8Static.mode: {"calibration": arguments.calibrate, **of_activations},
        FullInt8.mode: {"calibration": arguments.calibrate, **of_activations},
        WeightInt4.mode: {"block_size": arguments.block_size},
        GGUF: {"file": arguments.gguf},
        LEARNED: {"source": arguments.weights},
    }
    calibrated = (Int8Static.mode, FullInt8.mode)
    options = {"gguf": (GGUF,), "weights": (LEARNED,), "calibrate": calibrated, "block_size": (WeightInt4.mode,)}
    for option, modes in options.items():
        if getattr(arguments, option) is not None and not set(modes).intersection(names):
            raise QuantizationError(f"--{option.replace('_', '-')} is for --quantize {' or '.join(modes)}")
    needing = [each for each in calibrated if each in names]
    if needing and arguments.calibrate is None:
        words = "an .npz file with an array of some hundred real examples for each input"
        raise QuantizationError(f"--quantize {needing[0]} needs --calibrate FILE: {words}")
    if LEARNED in names and arguments.weights is None:
        raise QuantizationError(f"--quantize {LEARNED} needs --weights: a file of QuantizedWeights.save")
    if arguments.calibrate:
        arrays = read_arrays(arguments.calibrate)
        if len(arrays) > 1:
            arrays.pop(LABELS, None)  # The file of an evaluation is often that of the calibration.
        batches = batches_of(arrays)
        for mode in calibrated:
            given[mode]["calibration"] = batches
    return {mode: {key: value for key, value in own.items() if value is not None} for mode, own in given.items()}


def read_evaluation(arguments: argparse.Namespace) -> Evaluation | None:
    """The evaluation that the options describe, or None.

    Raises:
        QuantizationError: the file does not contain arrays.
    """
    if arguments.evaluate is None:
        return None
    return evaluation_of(arguments.evaluate, arguments.min_agreement, arguments.max_loss)


def evaluation_of(path: str, min_agreement: float | None = None, max_loss: float | None = None) -> Evaluation:
    """The evaluation on the examples of an .npz file.

    Raises:
        QuantizationError: the file does not contain arrays.
    """
    from keras_transformer.export.verification.quantized.evaluation import Evaluation

    arrays = read_arrays(path)
    labels = arrays.pop(LABELS, None)
    batches = None if labels is None else [each[LABELS] for each in batches_of({LABELS: labels})]
    return Evaluation(batches_of(arrays), batches, min_agreement=min_agreement, max_loss=max_loss)


def read_arrays(path: str) -> dict[str, np.ndarray]:
    """The arrays of an .npz file, all of the same number of examples.

    Raises:
        QuantizationError: it is another file.
    """
    import numpy as np

    try:
        file = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise QuantizationError(f"no such file: '{path}'{nearest_path(path)}") from None
    except IsADirectoryError:
        advice = "write its examples as an .npz file: np.savez(file, INPUT=array)"
        raise QuantizationError(f"'{path}' is a folder; {advice}") from None
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
