"""Exports that keep the integers and scales of weights: where these are, and whether the model still has their values.

Those of the mode "gguf" are in the GGUF file that a model was read from, those of the mode "learned" in `QuantizedWeights`.
What reads them is imported when it is needed: it imports Keras.
"""

from __future__ import annotations

import fnmatch
import functools
import math
import os
import pathlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.export.data.limits import SMALL
from keras_transformer.export.errors import QuantizationError
from keras_transformer.export.quantization.options import GGUF, Gguf, Learned, Quantization, matches
from keras_transformer.export.remedies import Remedy

if TYPE_CHECKING:
    import keras

    from keras_transformer.export.quantization.known_blocks import KnownBlocks
    from keras_transformer.quantization import QuantizedWeights
    from keras_transformer.quantization.blocks import Blocks

_SHOWN = 3
# The modes that keep integers.
KEPT = (Gguf, Learned)


def blocks_of(quantization: Quantization) -> KnownBlocks:
    """The blocks of a file or of weights, which the check of a model and the writers of all formats read once.

    Args:
        quantization: `Gguf` or `Learned`.

    Raises:
        QuantizationError, MissingFileError, CorruptFileError: see `precisions.precision_of`.
    """
    source = quantization.source if isinstance(quantization, KEPT) else None
    if source is None:
        name = type(quantization).__name__
        raise QuantizationError(
            f"{quantization.mode!r} needs the file whose integers are kept", Remedy.SOURCE, name=name
        )
    if not isinstance(source, (str, os.PathLike)):
        return _of_weights(source)
    path = pathlib.Path(source)
    state = path.stat() if path.is_file() else None
    return _read(quantization.mode, str(path), state and (state.st_mtime_ns, state.st_size))


@functools.lru_cache(maxsize=1)
def _of_weights(weights: QuantizedWeights) -> KnownBlocks:
    from keras_transformer.export.quantization.known_blocks import LearnedBlocks

    return LearnedBlocks(weights, "the quantized weights of the model")


@functools.lru_cache(maxsize=2)
def _read(mode: str, path: str, state: tuple[int, int] | None) -> KnownBlocks:
    """The blocks of a file in some state: one that was written again is another one."""
    from keras_transformer.export.quantization.known_blocks import FileBlocks, LearnedBlocks
    from keras_transformer.quantization import QuantizedWeights, WeightQuantizationError

    if mode == GGUF:
        return FileBlocks(path)
    try:
        return LearnedBlocks(QuantizedWeights.load(path), path)
    except WeightQuantizationError as error:
        raise QuantizationError(str(error)) from error


def check_models(precisions: Sequence[Quantization | None], model: keras.Model, formats: Sequence[str]) -> None:
    """Refuses a model that does not have the values of the integers any more, before anything is converted.

    Args:
        precisions: a `Quantization` each, or None; those of other modes than `KEPT` are passed over.
        model: `keras.Model` as it is exported, in float32.
        formats: names of the formats of the export.

    Raises:
        QuantizationError: of "gguf", a large weight is not in the file with these values and is not in `keep_float`, or no
            weight is in blocks; of "learned", a weight that was quantized has other values and is not in `keep_float`; or a
            format does not have blocks of this type.
    """
    for each in precisions:
        if not isinstance(each, KEPT):
            continue
        weights = {
            variable.path: variable
            for variable in model.variables
            if len(variable.shape) > 1 and math.prod(variable.shape) >= SMALL
        }
        kept = matches(weights, each.keep_float)
        blocks = blocks_of(each)
        found = {path: blocks.names_of(np.asarray(value)) for path, value in weights.items() if path not in kept}
        check = _check_file if isinstance(each, Gguf) else _check_learned
        check(blocks, found, each)
        if "tflite" in formats:
            _check_halves(blocks, {path: names[0] for path, names in found.items() if names})


def _check_file(blocks: KnownBlocks, found: dict[str, list[str]], quantization: Quantization) -> None:
    """Refuses a model with other large weights than a GGUF file."""
    from keras_transformer.checkpoints.gguf.blocks import DECODED

    changed = [path for path, names in found.items() if not names]
    if changed:
        raise QuantizationError(
            f"{listed(changed)}: not in {blocks.source} with these values, so there are no blocks of it to keep. It was "
            "added or changed since, or not loaded in float32; other modes quantize it",
            Remedy.CHANGED,
            name=type(quantization).__name__,
            weight=changed[0],
        )
    if not any(blocks.has_blocks(name) for names in found.values() for name in names):
        raise QuantizationError(f"{blocks.source} has no weight of the model in blocks of {', '.join(DECODED)}")


def _check_learned(blocks: KnownBlocks, found: dict[str, list[str]], quantization: Quantization) -> None:
    """Refuses a model that lacks the values of a weight that was quantized."""
    present = {name for names in found.values() for name in names}
    changed = [name for name in blocks.names if name not in present and not is_kept_float(name, quantization)]
    if changed:
        raise QuantizationError(
            f"{listed(changed)}: the model does not have the values of {blocks.source} there. They were changed since, or "
            "are of another model: QuantizedWeights.apply restores them, and quantize_weights chooses new ones",
            Remedy.CHANGED,
            name=type(quantization).__name__,
            weight=changed[0],
        )


def _check_halves(blocks: KnownBlocks, located: dict[str, str]) -> None:
    """Refuses blocks that TFLite's kernels do not have."""
    larger = [path for path, name in located.items() if blocks.has_blocks(name) and _needs_floats(blocks.first(name))]
    if larger:
        raise QuantizationError(
            f"tflite: {listed(larger)}: blocks of {blocks.kind(located[larger[0]])}, whose scales need more than the half "
            "precision of the kernels",
            Remedy.HALVES,
        )


def _needs_floats(blocks: Blocks) -> bool:
    """Whether blocks, which are not whole rows, have scales in float32."""
    return blocks.scale.dtype != np.float16 and not blocks.has_whole_rows


def listed(paths: Iterable[str]) -> str:
    """The first of some paths, and how many more there are."""
    paths = list(paths)
    return ", ".join(paths[:_SHOWN]) + (f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else "")


def is_kept_float(name: str, quantization: Quantization) -> bool:
    """Whether the path of a variable matches `keep_float`."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in quantization.keep_float)
