"""Exports that keep the blocks of the GGUF file that a model was read from: which file, and whether the model is still its.

What reads the file is imported when it is needed: it imports Keras.
"""

from __future__ import annotations

import functools
import math
import pathlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.export.errors import QuantizationError
from keras_transformer.export.quantization.options import GGUF, Quantization, matches

if TYPE_CHECKING:
    from keras_transformer.export.quantization.file_blocks import FileBlocks

# Smaller weights are not quantized: the nodes would cost more.
_SMALL = 2048
_SHOWN = 3


def with_file(quantization: Quantization | None, model: Any) -> Quantization | None:
    """A `Quantization` of the mode "gguf" with the file that a model was read from, unless it names one.

    Raises:
        QuantizationError: the model was not read from a GGUF file, and none is named.
    """
    if quantization is None or quantization.mode != GGUF or quantization.file is not None:
        return quantization
    file = getattr(getattr(model, "checkpoint", None), "gguf", None)
    if file is None:
        raise QuantizationError(
            f"the model was not read by from_gguf, so its blocks are not known: pass Quantization({GGUF!r}, file=...)"
        )
    return quantization.of_file(file)


def of_files(quantizations: Sequence[Quantization | None], formats: Iterable[str]) -> list[Quantization]:
    """Those of the mode "gguf", before anything is converted.

    Args:
        quantizations: sequence of `Quantization` or None.
        formats: names of the formats of the export.

    Raises:
        QuantizationError: there is one without a file, or SavedModel is one of the formats.
    """
    found = [each for each in quantizations if each is not None and each.mode == GGUF]
    if found and "saved_model" in formats:
        raise QuantizationError(
            f"saved_model files have no blocks, which {GGUF!r} keeps: pass formats=['onnx', 'tflite']"
        )
    for each in found:
        file_of(each)
    return found


def file_of(quantization: Quantization) -> str:
    """The path of the file.

    Raises:
        QuantizationError: there is none.
    """
    if quantization.file is None:
        raise QuantizationError(f"{GGUF!r} needs the file whose blocks are kept: pass Quantization({GGUF!r}, file=...)")
    return str(quantization.file)


def blocks_of(quantization: Quantization) -> FileBlocks:
    """The blocks of the file, which the check of a model and the writers of all formats read once.

    Raises:
        QuantizationError: there is no file.
        MissingFileError, CorruptFileError: see `checkpoints.from_gguf`.
    """
    path = pathlib.Path(file_of(quantization))
    state = path.stat() if path.is_file() else None
    return _read(str(path), state and (state.st_mtime_ns, state.st_size))


@functools.lru_cache(maxsize=1)
def _read(path: str, state: tuple[int, int] | None) -> FileBlocks:
    """The blocks of a file in some state: one that was written again is another one."""
    from keras_transformer.export.quantization.file_blocks import FileBlocks

    return FileBlocks(path)


def check_models(quantizations: Sequence[Quantization | None], model: Any, formats: Sequence[str]) -> None:
    """Refuses a model that is not the one of a GGUF file, before anything is converted.

    Args:
        quantizations: sequence of `Quantization` or None; others than those of the mode "gguf" are passed over.
        model: `keras.Model` as it is exported, in float32.
        formats: names of the formats of the export.

    Raises:
        QuantizationError: a large weight is not in the file with these values and is not in `keep_float`, no weight is in
            blocks, or a format does not have blocks of this type.
    """
    for each in of_files(quantizations, formats):
        _check(each, model, formats)


def _check(quantization: Quantization, model: Any, formats: Sequence[str]) -> None:
    from keras_transformer.checkpoints.gguf.blocks import DECODED, WITH_HALVES

    weights = {each.path: each for each in model.variables if len(each.shape) > 1 and math.prod(each.shape) >= _SMALL}
    kept = matches(weights, quantization.keep_float)
    blocks = blocks_of(quantization)
    found = {path: _kind(blocks, np.asarray(each)) for path, each in weights.items() if path not in kept}
    changed = [path for path, kind in found.items() if kind is None]
    if changed:
        raise QuantizationError(
            f"{_listed(changed)}: not in {blocks.path} with these values, so there are no blocks of it to keep. It was "
            "added or changed since, or not loaded in float32: keep_float= leaves it in float, other modes quantize it"
        )
    if not set(found.values()) & {*DECODED}:
        raise QuantizationError(f"{blocks.path} has no weight of the model in blocks of {', '.join(DECODED)}")
    larger = [path for path, kind in found.items() if kind in {*DECODED} - {*WITH_HALVES}]
    if larger and "tflite" in formats:
        raise QuantizationError(
            f"tflite: {_listed(larger)}: blocks of {found[larger[0]]}, whose scales need more than the half "
            "precision of the kernels: formats=['onnx'] keeps them"
        )


def _kind(blocks: FileBlocks, array: np.ndarray) -> str | None:
    """The type of a weight in the file, whose rows may be any of its axes and have any order; None if it is not there."""
    for split in range(1, array.ndim):
        matrix = array.reshape(math.prod(array.shape[:split]), -1)
        for rows in (matrix, matrix.T):
            located = blocks.locate(rows)
            if located is not None:
                return blocks.kind(located[0])
    return None


def _listed(paths: Iterable[str]) -> str:
    paths = list(paths)
    return ", ".join(paths[:_SHOWN]) + (f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else "")
