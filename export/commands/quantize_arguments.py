"""Options of the command line for quantization, and what they say as objects."""

import zipfile

from keras_transformer.export.errors import QuantizationError

_BATCH = 32
_LABELS = "labels"


def add_arguments(parser):
    """Adds the options of `export` that have to do with quantization."""
    group = parser.add_argument_group("quantization")
    add_mode(group)
    add_evaluation(group)
    add = group.add_argument
    add("--min-agreement", type=float, metavar="SHARE", help="fail if fewer of the top answers stay, such as 0.99")
    add("--max-loss", type=float, metavar="SHARE", help="fail if the accuracy falls by more, such as 0.005")


def add_mode(parser, default=None):
    """Adds the options that say how to quantize."""
    add = parser.add_argument
    known = "fp16, int8, int8_static, weight_int8 or weight_int4" + (f" (default: {default})" if default else "")
    add("--quantize", metavar="MODE", default=default, help=known)
    add("--calibrate", metavar="FILE", help=".npz with an array for each input, for int8_static")
    help = "weights that stay float, such as '*/head/*'; repeatable"
    add("--keep-float", action="append", metavar="PATTERN", help=help)
    add("--block-size", type=int, metavar="N", help="weights that share a scale in weight_int4 (default: 32)")


def add_evaluation(parser, required=False):
    """Adds the option that names the data to measure with."""
    help = f".npz with an array for each input and, for a score, '{_LABELS}'"
    parser.add_argument("--evaluate", metavar="FILE", required=required, help=help)


def read_arguments(arguments):
    """The keyword arguments of `export` that the options ask for.

    Args:
        arguments: what `argparse` gives for the options of `add_arguments`, with or without the two bounds.

    Returns:
        dict of "quantize" and "evaluation", each None where nothing is asked for.

    Raises:
        QuantizationError: an option without the one that it belongs to, or a file that does not hold arrays.
    """
    from keras_transformer.export.quantization.evaluation import Evaluation
    from keras_transformer.export.quantization.options import Quantization

    for option, needed in (
        ("calibrate", "quantize"),
        ("keep_float", "quantize"),
        ("block_size", "quantize"),
        ("evaluate", "quantize"),
        ("min_agreement", "evaluate"),
        ("max_loss", "evaluate"),
    ):
        if getattr(arguments, option, None) is not None and getattr(arguments, needed) is None:
            raise QuantizationError(f"--{option.replace('_', '-')} needs --{needed}")
    if arguments.quantize is None:
        return {"quantize": None, "evaluation": None}
    options = {"keep_float": tuple(arguments.keep_float or ())}
    if arguments.calibrate:
        options["calibration"] = _batches(_arrays(arguments.calibrate))
    if arguments.block_size:
        options["block_size"] = arguments.block_size
    return {"quantize": Quantization(arguments.quantize, **options), "evaluation": _evaluation(arguments, Evaluation)}


def _evaluation(arguments, cls):
    if arguments.evaluate is None:
        return None
    arrays = _arrays(arguments.evaluate)
    labels = arrays.pop(_LABELS, None)
    batches = None if labels is None else [each[_LABELS] for each in _batches({_LABELS: labels})]
    bounds = {name: getattr(arguments, name, None) for name in ("min_agreement", "max_loss")}
    return cls(_batches(arrays), batches, **bounds)


def _arrays(path):
    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (ValueError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise QuantizationError(f"'{path}' is not an .npz file of arrays") from error
    sizes = {name: len(array) if array.ndim else 0 for name, array in arrays.items()}
    if not arrays or 0 in sizes.values() or len(set(sizes.values())) > 1:
        raise QuantizationError(f"'{path}' must hold arrays of one and the same number of examples; it holds {sizes}")
    return arrays


def _batches(arrays):
    count = len(next(iter(arrays.values())))
    return [
        {name: array[start : start + _BATCH] for name, array in arrays.items()} for start in range(0, count, _BATCH)
    ]
