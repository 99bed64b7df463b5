"""The precisions that `quantize` of `export` asks for, resolved once: a `Quantization` each, or None for float files."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from keras_transformer.export.errors import QuantizationError
from keras_transformer.export.quantization.kept import KEPT, blocks_of
from keras_transformer.export.quantization.options import CLASSES, FLOAT, MODES, PRECISIONS, Gguf, Learned, Quantization
from keras_transformer.export.remedies import Remedy
from keras_transformer.utils.choice import suggestion

if TYPE_CHECKING:
    import keras

Mode = str | Quantization
Modes = list[Mode] | tuple[Mode, ...]


def precisions_of(quantize: Mode | Modes | None, model: keras.Model | None = None) -> list[Quantization | None]:
    """One precision, or several.

    Args:
        quantize: the name of a mode, a `Quantization`, or several of them; None or "float32" for float files.
        model: see `precision_of`.

    Raises:
        QuantizationError: there is none, one occurs twice, or see `precision_of`.
        MissingFileError, CorruptFileError: see `precision_of`.

    Example:

    >>> precisions_of("int8"), precisions_of(["float32", "fp16"])
    ([Int8()], [None, Float16()])
    """
    if not isinstance(quantize, (list, tuple)):
        return [precision_of(quantize, model)]
    found = [parsed(each) for each in quantize]
    names = [precision_name(each) for each in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise QuantizationError(f"quantize has {twice} twice: each precision has a folder of its own, named after it")
    if not found:
        raise QuantizationError(f"quantize must name a precision: {', '.join(PRECISIONS)}")
    return [precision_of(each, model) for each in found]


def precision_of(quantize: Mode | None, model: keras.Model | None = None) -> Quantization | None:
    """A precision; one that keeps integers with their source: the file that it names, or that of the model.

    Args:
        quantize: the name of a mode, or a `Quantization`; None or "float32" for float files.
        model: `keras.Model`: one that `from_gguf` read, or with `quantized_weights`; None where only files are known.

    Raises:
        QuantizationError: it is neither, or an unknown mode; no file is named and the model has none; or the file is not
            one of `QuantizedWeights.save`.
        MissingFileError, CorruptFileError: see `checkpoints.from_gguf`.
    """
    found = parsed(quantize)
    if isinstance(found, KEPT):
        found = _with_source(found, model)
        blocks_of(found)
    return found


def parsed(quantize: Any) -> Quantization | None:
    """A precision as it is asked for: a `Quantization` from the name of a mode; a `Quantization`, or None, as it is.

    Raises:
        QuantizationError: it is neither, or an unknown mode.
    """
    if quantize is None or isinstance(quantize, Quantization):
        return quantize
    if not isinstance(quantize, str):
        raise QuantizationError(f"quantize must be the name of a mode or a Quantization. Received: {quantize!r}")
    if quantize == FLOAT:
        return None
    if quantize not in CLASSES:
        advice = suggestion(quantize, MODES)
        raise QuantizationError(f"unknown quantization {quantize!r}; valid: {', '.join(MODES)}{advice}")
    return CLASSES[quantize]()


def precision_name(quantization: Quantization | None) -> str:
    """The name of a precision: that of the mode, or "float32"."""
    return FLOAT if quantization is None else quantization.mode


def _with_source(quantization: Gguf | Learned, model: keras.Model) -> Gguf | Learned:
    if quantization.source is not None or model is None:
        return quantization
    if isinstance(quantization, Gguf):
        file = getattr(getattr(model, "checkpoint", None), "gguf", None)
        if file is None:
            raise QuantizationError(
                "the model was not read by from_gguf, so its blocks are not known", Remedy.SOURCE, name="Gguf"
            )
        return dataclasses.replace(quantization, file=file)
    from keras_transformer.quantization import QuantizedWeights, WeightQuantizationError

    try:
        return dataclasses.replace(quantization, source=QuantizedWeights.of(model))
    except WeightQuantizationError as error:
        raise QuantizationError(error, Remedy.SOURCE, name="Learned") from error
