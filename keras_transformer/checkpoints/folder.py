"""A folder in Hugging Face's layout: settings, tensors in safetensors files, and the files of a tokenizer."""

import pathlib
from typing import NamedTuple

from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.errors import (
    CheckpointError,
    CorruptFileError,
    MissingFileError,
    MissingTensorError,
    UnsafePathError,
)
from keras_transformer.utils.json_files import read_json

_WEIGHTS, _INDEX = "model.safetensors", "model.safetensors.index.json"
_GENERATION = "generation_config.json"
_PATTERNS = ["*.json", "*.model", "*.safetensors", "*.txt", "*.jinja"]
_OLD_NORM = {"gamma": "weight", "beta": "bias"}


class TensorInfo(NamedTuple):
    """Where a tensor is: its file, its shape, safetensors' name of its dtype, and its own name in the file."""

    file: pathlib.Path
    shape: tuple
    dtype: str
    name: str


class Folder:
    """A checkpoint on disk; only headers are read before `read`.

    Args:
        path: str or path.

    Attributes:
        config: `Config`.
        tensors: dict of name to `TensorInfo`; names of old versions are those of today here.

    Raises:
        MissingFileError: no such folder, or no config or safetensors file in it.
        CorruptFileError: a file that is truncated, or no JSON.
        UnsafePathError: the index names a file outside of the folder.
        MissingTensorError: the index names a tensor that its file has not.
    """

    def __init__(self, path):
        self.path = pathlib.Path(path)
        if not self.path.is_dir():
            raise MissingFileError(f"No such folder: {self.path}")
        values = self.json("config.json")
        if (self.path / _GENERATION).is_file():  # Where it differs, transformers generates by this one.
            ends = self.json(_GENERATION).get("eos_token_id")
            values = values if ends is None else {**values, "eos_token_id": ends}
        self.tensors = _renamed(self._tensors(), self.path)
        self.config = Config(values, str(self.path / "config.json"), self.tensors)

    def json(self, name, kind=dict):
        """The content of a JSON file of the folder: a dict, or another kind."""
        file = self.path / name
        if not file.is_file():
            raise MissingFileError(f"{self.path} holds no {name}.")
        return read_json(file, CorruptFileError, kind)

    def read(self, name):
        """A tensor, as a numpy array in the dtype of the file."""
        info = self.tensors[name]
        with _opened(info.file) as file:
            return file.get_tensor(info.name)

    def _tensors(self):
        if (self.path / _INDEX).is_file():
            return self._sharded()
        if not (self.path / _WEIGHTS).is_file():
            pickled = next(iter(self.path.glob("*.bin")), None)
            reason = f"; {pickled.name} is a pickle, which may run code: save it as safetensors" if pickled else ""
            raise MissingFileError(f"{self.path} holds no {_WEIGHTS}{reason}.")
        return _header(self.path / _WEIGHTS)

    def _sharded(self):
        places = self.json(_INDEX).get("weight_map")
        if not isinstance(places, dict) or not all(isinstance(file, str) for file in places.values()):
            raise CorruptFileError(f"{self.path / _INDEX} holds no weight_map.")
        headers = {}
        for name in sorted(set(places.values())):
            if pathlib.PurePath(name).name != name or name in (".", "..") or "\\" in name:
                raise UnsafePathError(f"{self.path / _INDEX} names {name!r}, which is not a file of the folder.")
            if not (self.path / name).is_file():
                raise MissingFileError(f"{self.path} lacks the shard {name}, which {_INDEX} names.")
            headers[name] = _header(self.path / name)
        for tensor, file in places.items():
            if tensor not in headers[file]:
                raise MissingTensorError(f"{self.path / file} lacks the tensor {tensor!r}, which {_INDEX} names.")
        return {tensor: headers[file][tensor] for tensor, file in places.items()}


def _renamed(tensors, path):
    """The same under the names of today: the norms of BERT's first checkpoints are called as in TensorFlow."""
    renamed = {}
    for name, info in tensors.items():
        start, _, end = name.rpartition("LayerNorm.")
        today = f"{start}LayerNorm.{_OLD_NORM[end]}" if end in _OLD_NORM and start != name else name
        if renamed.setdefault(today, info) is not info:
            raise CorruptFileError(f"{path} holds {today!r} twice, once under its old name.")
    return renamed


def find_folder(source):
    """The path of a folder, or of the copy that huggingface_hub makes of a repository.

    Args:
        source: str or path: a folder; or the name of a repository, "owner/name".

    Raises:
        MissingFileError: neither a folder nor a repository that can be had.
    """
    path = pathlib.Path(source)
    looks_local = isinstance(source, pathlib.Path) or path.is_absolute() or str(source).startswith(".")
    if path.exists() or looks_local or str(source).count("/") > 1:
        return path
    import huggingface_hub

    try:
        return pathlib.Path(huggingface_hub.snapshot_download(str(source), allow_patterns=_PATTERNS))
    except Exception as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise MissingFileError(f"{str(source)!r} is no folder, and cannot be fetched: {reason[0][:160]}") from error


def _opened(file):
    import safetensors

    try:
        return safetensors.safe_open(file, framework="numpy")
    except (safetensors.SafetensorError, OSError, ValueError) as error:
        raise CorruptFileError(f"{file} cannot be read: {error}") from error


def _header(file):
    with _opened(file) as opened:
        try:
            slices = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118 (it is no dict)
            return {name: TensorInfo(file, tuple(s.get_shape()), s.get_dtype(), name) for name, s in slices.items()}
        except Exception as error:
            raise CheckpointError(f"{file} cannot be read: {error}") from error
