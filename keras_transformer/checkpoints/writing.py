"""Saving of Keras models as Hugging Face checkpoints."""

from __future__ import annotations

import json
import pathlib
import warnings

import keras

from keras_transformer.checkpoints.checkpoint import Checkpoint, checkpoint_of
from keras_transformer.checkpoints.errors import CheckpointError
from keras_transformer.checkpoints.files.folder import check_empty
from keras_transformer.checkpoints.files.mxfp4 import NotMXFP4Error, without_mxfp4
from keras_transformer.checkpoints.tensors_of_model import TensorsOfModel
from keras_transformer.checkpoints.transfers import listed, make_transfers, weights_without_tensor
from keras_transformer.utils.atomic_write import replacing_folder
from keras_transformer.utils.types import Path

_NAME = "model"


def to_huggingface(
    model: keras.Model,
    folder: Path,
    *,
    like: Path | None = None,
    omit_new: bool = False,
    max_shard_bytes: int = 5 * 10**9,
    verbose: int = 1,
) -> None:
    """Saves a model as a checkpoint of Hugging Face: config, safetensors, and the other files of the original.

    The tensors of a checkpoint that `from_huggingface` has loaded are written back byte for byte, in their original dtypes.
    The folder appears when it is complete. Memory: that of one shard and one tensor.

    Matrices in MXFP4 (gpt-oss) are written in MXFP4, byte for byte, as long as their values are values of MXFP4. After
    training they are not: then all of them are written in bfloat16, and the config without "quantization_config", as
    transformers does; a warning says so.

    Args:
        model: `keras.Model` of `from_huggingface`, possibly trained further.
        folder: str or path of a folder that does not exist or is empty.
        like: str or path of a checkpoint of the same architecture and size, whose config is used; for a model without one,
            such as one from a `.keras` file. Defaults to the model's own.
        omit_new: bool. Whether weights that the checkpoint does not have, such as those of a new head, are left out. By
            default they are an error, because the folder would lack them.
        max_shard_bytes: int >= 1. A larger checkpoint is split into files of at most about this size.
        verbose: int. 1 for a progress bar, 0 for none.

    Raises:
        CheckpointError: the folder is not empty; the checkpoint of the model is unknown or another one; or the model has
            weights that the checkpoint does not have.

    Example:

    >>> to_huggingface(from_huggingface("bert"), "bert-again")  # doctest: +SKIP
    """
    folder = pathlib.Path(folder)
    check_empty(folder)
    checkpoint = checkpoint_of(model) if like is None else checkpoint_like(like)
    try:
        _write_folder(model, folder, checkpoint, omit_new, max_shard_bytes, verbose)
    except NotMXFP4Error as error:
        warnings.warn(f"{error} All matrices are written in bfloat16, without MXFP4.", stacklevel=2)
        _write_folder(model, folder, without_mxfp4(checkpoint), omit_new, max_shard_bytes, verbose)


def _write_folder(
    model: keras.Model, folder: pathlib.Path, checkpoint: Checkpoint, omit_new: bool, max_shard_bytes: int, verbose: int
) -> None:
    """Writes the folder of a model as its checkpoint describes it; see `to_huggingface`."""
    transfers = make_transfers(checkpoint.entries, model)
    new = weights_without_tensor(transfers, model, checkpoint.architecture)
    if new and not omit_new:
        raise CheckpointError(
            f"The config of the checkpoint describes no weight {listed(new)} of {model.name!r}. Pass omit_new=True to write "
            "the others only, or save the whole model with model.save."
        )
    tensors = TensorsOfModel(transfers, checkpoint)
    with replacing_folder(folder.resolve()) as work:
        for name, content in checkpoint.files.items():
            (work / name).parent.mkdir(exist_ok=True)
            (work / name).write_bytes(content)
        sizes = tensors.sizes()
        # The tensors of other modules, such as "2_Dense/linear.weight", are in folders of their own.
        inside = {name: pathlib.PurePosixPath(name).parent for name in sizes if "/" in name}
        own = {name: size for name, size in sizes.items() if name not in inside}
        _write_shards(work, tensors, own, max_shard_bytes, verbose)
        for subfolder in sorted(set(inside.values())):
            names = {name: sizes[name] for name, parent in inside.items() if parent == subfolder}
            _write_shards(work / subfolder, tensors, names, sum(names.values()), verbose=0)


def _write_shards(
    folder: pathlib.Path, tensors: TensorsOfModel, sizes: dict[str, int], max_bytes: int, verbose: int
) -> None:
    """Writes tensors, a dict of name to bytes, to one file or to several with an index."""
    from safetensors.numpy import save_file

    shards = _shards(sizes, max_bytes)
    progress = keras.utils.Progbar(sum(map(len, shards)), unit_name="tensor", verbose=verbose)
    files: dict[str, str] = {}
    total = 0
    for number, names in enumerate(shards, start=1):
        file = f"{_NAME}.safetensors" if len(shards) == 1 else f"{_NAME}-{number:05}-of-{len(shards):05}.safetensors"
        arrays = {tensors.name_in_file(name): tensors[name] for name in names}
        save_file(arrays, folder / file, metadata={"format": "pt"})
        files |= dict.fromkeys(arrays, file)
        total += sum(array.nbytes for array in arrays.values())
        progress.add(len(names))
    if len(shards) > 1:
        index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(files.items()))}
        (folder / f"{_NAME}.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


def _shards(sizes: dict[str, int], max_bytes: int) -> list[list[str]]:
    """Returns lists of names, each of at most `max_bytes` or a single name."""
    shards: list[list[str]] = [[]]
    remaining = max_bytes
    for name, size in sizes.items():
        if size > remaining and shards[-1]:
            shards.append([])
            remaining = max_bytes
        shards[-1].append(name)
        remaining -= size
    return shards


def checkpoint_like(path: Path) -> Checkpoint:
    """Returns the `Checkpoint` of a folder."""
    from keras_transformer.checkpoints.reading import checkpoint_in

    return checkpoint_in(path)
