"""Exports that keep the integers and scales of weights: where these are, and whether the model still has their values.

Those of the mode "gguf" are in the GGUF file that a model was read from, those of the mode "learned" in `QuantizedWeights`.
What reads them is imported when it is needed: it imports Keras.
"""

from __future__ import annotations

import fnmatch
import functools
import math
import pathlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.export.errors import QuantizationError
from keras_transformer.export.quantization.options import GGUF, KEPT, LEARNED, Quantization, matches

if TYPE_CHECKING:
    from keras_transformer.export.quantization.known_blocks import KnownBlocks
    from keras_transformer.quantization import QuantizedWeights
    from keras_transformer.quantization.blocks import Blocks

# Smaller weights are not quantized: the nodes would cost more.
_SMALL = 2048
_SHOWN = 3


def with_source(quantization: Quantization | None, model: Any) -> Quantization | None:
    """A `Quantization` with the GGUF file that a model was read from, or its `quantized_weights`, unless it names a file.

    Raises:
        QuantizationError: the model has neither, and no file is named.
    """
    if quantization is None or quantization.mode not in KEPT or _has_source(quantization):
        return quantization
    if quantization.mode == LEARNED:
        from keras_transformer.quantization import QuantizedWeights, WeightQuantizationError

        try:
            return quantization.of_weights(QuantizedWeights.of(model))
        except WeightQuantizationError as error:
            raise QuantizationError(f"{error}; or pass Quantization({LEARNED!r}, file=...)") from error
    file = getattr(getattr(model, "checkpoint", None), "gguf", None)
    if file is None:
        raise QuantizationError(
            f"the model was not read by from_gguf, so its blocks are not known: pass Quantization({GGUF!r}, file=...)"
        )
    return quantization.of_file(file)


def check_sources(quantizations: Iterable[Quantization | None]) -> list[Quantization]:
    """Those that keep integers, before anything is converted.

    Raises:
        QuantizationError: there is one without a file or weights, or the file is not one of `QuantizedWeights.save`.
        MissingFileError, CorruptFileError: see `checkpoints.from_gguf`.
    """
    found = [each for each in quantizations if each is not None and each.mode in KEPT]
    for each in found:
        blocks_of(each)
    return found


def blocks_of(quantization: Quantization) -> KnownBlocks:
    """The blocks of a file or of weights, which the check of a model and the writers of all formats read once.

    Raises:
        QuantizationError, MissingFileError, CorruptFileError: see `check_sources`.
    """
    if not _has_source(quantization):
        raise QuantizationError(
            f"{quantization.mode!r} needs the file whose integers are kept: pass "
            f"Quantization({quantization.mode!r}, file=...)"
        )
    if quantization.weights is not None:
        return _of_weights(quantization.weights)
    path = pathlib.Path(str(quantization.file))
    state = path.stat() if path.is_file() else None
    return _read(quantization.mode, str(path), state and (state.st_mtime_ns, state.st_size))


def _has_source(quantization: Quantization) -> bool:
    return quantization.file is not None or quantization.weights is not None


@functools.lru_cache(maxsize=1)
def _of_weights(weights: QuantizedWeights) -> KnownBlocks:
    from keras_transformer.export.quantization.learned_blocks import LearnedBlocks

    return LearnedBlocks(weights, "the quantized weights of the model")


@functools.lru_cache(maxsize=2)
def _read(mode: str, path: str, state: tuple[int, int] | None) -> KnownBlocks:
    """The blocks of a file in some state: one that was written again is another one."""
    if mode == GGUF:
        from keras_transformer.export.quantization.file_blocks import FileBlocks

        return FileBlocks(path)
    from keras_transformer.export.quantization.learned_blocks import LearnedBlocks
    from keras_transformer.quantization import QuantizedWeights, WeightQuantizationError

    try:
        return LearnedBlocks(QuantizedWeights.load(path), path)
    except WeightQuantizationError as error:
        raise QuantizationError(str(error)) from error


def check_models(quantizations: Sequence[Quantization | None], model: Any, formats: Sequence[str]) -> None:
    """Refuses a model that does not have the values of the integers any more, before anything is converted.

    Args:
        quantizations: sequence of `Quantization` or None; those of other modes than `KEPT` are passed over.
        model: `keras.Model` as it is exported, in float32.
        formats: names of the formats of the export.

    Raises:
        QuantizationError: of "gguf", a large weight is not in the file with these values and is not in `keep_float`, or no
            weight is in blocks; of "learned", a weight that was quantized has other values and is not in `keep_float`; or a
            format does not have blocks of this type.
    """
    for each in check_sources(quantizations):
        weights = {
            variable.path: variable
            for variable in model.variables
            if len(variable.shape) > 1 and math.prod(variable.shape) >= _SMALL
        }
        kept = matches(weights, each.keep_float)
        blocks = blocks_of(each)
        found = {path: blocks.names_of(np.asarray(value)) for path, value in weights.items() if path not in kept}
        check = _check_file if each.mode == GGUF else _check_learned
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
            "added or changed since, or not loaded in float32: keep_float= leaves it in float, other modes quantize it"
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
            "are of another model: QuantizedWeights.apply restores them, quantize_weights chooses new ones, and "
            "keep_float= leaves a weight in float"
        )


def _check_halves(blocks: KnownBlocks, located: dict[str, str]) -> None:
    """Refuses blocks that TFLite's kernels do not have."""
    larger = [path for path, name in located.items() if blocks.has_blocks(name) and _needs_floats(blocks.first(name))]
    if larger:
        raise QuantizationError(
            f"tflite: {listed(larger)}: blocks of {blocks.kind(located[larger[0]])}, whose scales need more than the half "
            "precision of the kernels: formats=['onnx'] keeps them"
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
