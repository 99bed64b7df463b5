"""From a Keras model to a checkpoint that transformers loads."""

import json
import pathlib

import keras
import numpy as np

from keras_transformer.checkpoints.checkpoint import checkpoint_of
from keras_transformer.checkpoints.errors import CheckpointError
from keras_transformer.checkpoints.transfers import pair
from keras_transformer.utils.atomic_write import replacing_folder

_DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_NAME = "model"


def to_huggingface(model, folder, *, like=None, max_shard_bytes=5 * 10**9, verbose=1):
    """Writes a model as a checkpoint of Hugging Face: config, safetensors, and the files that lay beside them.

    A checkpoint that `from_huggingface` has read comes back with every tensor byte for byte, in the dtypes that it had. The
    folder appears when all of it is written. Memory: that of one shard.

    Args:
        model: `keras.Model` of `from_huggingface`, trained further or not.
        folder: str or path, which must not exist, or be an empty folder.
        like: str or path of a checkpoint of the same architecture and size, whose config is taken; for a model that has lost
            its own, as one loaded from a `.keras` file has. None for the model's own.
        max_shard_bytes: int >= 1. A larger checkpoint is split into files of about that size.
        verbose: int: 1 for a progress bar, 0 for none.

    Raises:
        CheckpointError: the folder holds something; or the model is of no known checkpoint, or not of this one.

    Example:

    >>> to_huggingface(from_huggingface("bert"), "bert-again")  # doctest: +SKIP
    """
    folder = pathlib.Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CheckpointError(f"{folder} holds something already.")
    checkpoint = checkpoint_of(model) if like is None else _like(like)
    tensors = _Tensors(pair(checkpoint.entries, model), checkpoint)
    with replacing_folder(folder.resolve()) as work:
        for name, content in checkpoint.files.items():
            (work / name).parent.mkdir(exist_ok=True)
            (work / name).write_bytes(content)
        _write_shards(work, tensors, max_shard_bytes, verbose)


class _Tensors:
    """The tensors of a model, each made when it is asked for."""

    def __init__(self, transfers, checkpoint):
        self._dtypes, self._names, self._unused = checkpoint.dtypes, checkpoint.names, checkpoint.unused
        self._places = {name: (transfer, index) for transfer in transfers for index, name in enumerate(transfer.theirs)}
        tied = {name: source for name, source in checkpoint.architecture.tied.items() if name in self._dtypes}
        self._places |= {
            name: self._places[source]
            for name, source in tied.items()
            if name not in self._places and source in self._places
        }

    def sizes(self):
        """dict of name to bytes."""
        found = {}
        for name, (transfer, index) in self._places.items():
            shape = transfer.layout.shapes(transfer.shapes)[index]
            found[name] = int(np.prod(shape)) * np.dtype(self._dtype(name, transfer)).itemsize
        return found | {name: array.nbytes for name, array in self._unused.items()}

    def name_in_file(self, name):
        """That under which the file had it."""
        return self._names.get(name, name)

    def __getitem__(self, name):
        if name in self._unused:
            return self._unused[name]
        transfer, index = self._places[name]
        weights = [keras.ops.convert_to_numpy(variable.value) for variable in transfer.variables]
        # Not ascontiguousarray, which gives a single number an axis.
        return transfer.layout.write(weights)[index].astype(self._dtype(name, transfer), order="C")

    def _dtype(self, name, transfer):
        import ml_dtypes

        dtype = _DTYPES.get(self._dtypes.get(name), transfer.variables[0].dtype)
        return ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype


def _write_shards(folder, tensors, max_bytes, verbose):
    from safetensors.numpy import save_file

    shards = _shards(tensors.sizes(), max_bytes)
    progress = keras.utils.Progbar(sum(map(len, shards)), unit_name="tensor", verbose=verbose)
    places, total = {}, 0
    for number, names in enumerate(shards, start=1):
        file = f"{_NAME}.safetensors" if len(shards) == 1 else f"{_NAME}-{number:05}-of-{len(shards):05}.safetensors"
        arrays = {tensors.name_in_file(name): tensors[name] for name in names}
        save_file(arrays, folder / file, metadata={"format": "pt"})
        places |= dict.fromkeys(arrays, file)
        total += sum(array.nbytes for array in arrays.values())
        progress.add(len(names))
    if len(shards) > 1:
        index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(places.items()))}
        (folder / f"{_NAME}.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


def _shards(sizes, max_bytes):
    """Names in lists, of which each is of `max_bytes` at the most, or a single name."""
    shards, room = [[]], max_bytes
    for name, size in sizes.items():
        if size > room and shards[-1]:
            shards.append([])
            room = max_bytes
        shards[-1].append(name)
        room -= size
    return shards


def _like(path):
    """The `Checkpoint` of a folder."""
    from keras_transformer.checkpoints.reading import checkpoint_in

    return checkpoint_in(path)
