"""The graphs of a folder under the names that transformers.js asks for, each with its weights inside."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import NamedTuple

from keras_transformer.export.onnx.weights.external_data import weight_files
from keras_transformer.export.onnx.weights.files import WeightsFile, read, write

FOLDER = "onnx"
# A file of protocol buffers has at most 2 GB.
_MAX_INLINE = 1_900_000_000


class Packed(NamedTuple):
    """The graphs of a folder.

    Args:
        files: dict of signature name to the path of its file in the bundle.
        large: names of the files whose weights are beside them.
        is_rewritten: bool. Whether files were written again, not only moved.
    """

    files: dict[str, str]
    large: list[str]
    is_rewritten: bool


def pack(work: pathlib.Path, files: Mapping[str, str], names: Mapping[str, str], suffix: str) -> Packed:
    """Moves the graphs of a bundle to `onnx/`, each with its weights inside, or in a file of its own above 1.9 GB.

    Args:
        work: folder of the bundle.
        files: dict of signature name to the path of its file in it.
        names: dict of signature name to the name of its file in the library, such as "decoder_model_merged".
        suffix: end of this name for the precision, such as "_q4".

    Returns:
        `Packed`.
    """
    (work / FOLDER).mkdir()
    packed = {signature: f"{FOLDER}/{names[signature]}{suffix}.onnx" for signature in files}
    beside = {signature: weight_files(work / path) for signature, path in files.items()}
    large = [
        pathlib.Path(packed[signature]).name
        for signature, path in files.items()
        if beside[signature] and _save(work / path, work / packed[signature])
    ]
    for signature, path in files.items():
        if beside[signature]:
            (work / path).unlink()
        else:
            (work / path).rename(work / packed[signature])
    weights = {name for each in beside.values() for name in each}
    for name in weights:
        (work / name).unlink()
    return Packed(packed, large, bool(weights))


def _save(source: pathlib.Path, target: pathlib.Path) -> bool:
    """Writes a graph with its own weights; returns whether they are in a file beside it."""
    model = read(source)
    is_large = sum(tensor.nbytes for tensor in model.graph.initializers.tensors()) > _MAX_INLINE
    write(model, target, WeightsFile(target.with_name(f"{target.name}_data")) if is_large else None)
    return is_large
