"""A checkpoint folder in Hugging Face's layout: config, safetensors files and the files of a tokenizer."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.errors import (
    CheckpointError,
    CorruptFileError,
    MissingFileError,
    MissingTensorError,
    UnsafePathError,
)
from keras_transformer.checkpoints.files.lazy_tensors import Bounds, LazyTensor
from keras_transformer.generation.sampling_defaults import SamplingDefaults
from keras_transformer.utils.errors import library_exceptions, one_line
from keras_transformer.utils.json_files import read_json
from keras_transformer.utils.types import Path

if TYPE_CHECKING:
    import safetensors

_WEIGHTS, _INDEX = "model.safetensors", "model.safetensors.index.json"
# Copies of the weights in formats of their authors, as in the repositories of gpt-oss.
_IGNORED = ["original/*", "metal/*"]
_GENERATION = "generation_config.json"
_PATTERNS = ["*.json", "*.model", "*.safetensors", "*.txt", "*.jinja"]
_OLD_NORM = {"gamma": "weight", "beta": "bias"}


class TensorInfo(NamedTuple):
    """The file of a tensor, its shape, safetensors' name of its dtype, and its name in the file."""

    file: pathlib.Path
    shape: tuple[int, ...]
    dtype: str
    name: str


class Folder:
    """A checkpoint on disk, of which only headers are loaded until `read` is called.

    Args:
        path: str or path.

    Attributes:
        source: str. The name in errors.
        config: `Config`.
        sampling: `SamplingDefaults` of `generation_config.json`, or None.
        tensors: dict of name to `TensorInfo`, with old names replaced by the current ones.

    Raises:
        MissingFileError: the folder, or the config or safetensors file in it, does not exist.
        CorruptFileError: a file is truncated or not JSON.
        UnsafePathError: the index refers to a file outside of the folder.
        MissingTensorError: a file lacks a tensor that the index lists.
    """

    sampling: SamplingDefaults | None = None

    def __init__(self, path: Path) -> None:
        self.path = pathlib.Path(path)
        self.source = str(self.path)
        if not self.path.is_dir():
            raise MissingFileError(f"No such folder: {self.path}")
        values = self.json("config.json")
        if (self.path / _GENERATION).is_file():  # For generation, it takes precedence in transformers.
            generation = self.json(_GENERATION)
            self.sampling = SamplingDefaults.from_generation_config(generation)
            ends = generation.get("eos_token_id")
            values = values if ends is None else {**values, "eos_token_id": ends}
        self.tensors = _renamed(self._tensors(), self.path)
        self.config = Config(values, str(self.path / "config.json"), self.tensors)

    def json(self, name: str, kind: type = dict) -> Any:
        """Returns the content of a JSON file of the folder, a dict or a list."""
        file = self.path / name
        if not file.is_file():
            raise MissingFileError(f"{self.path} has no {name}.")
        return read_json(file, CorruptFileError, kind)

    def read(self, name: str) -> np.ndarray:
        """Returns a tensor as a NumPy array in the dtype of the file."""
        info = self.tensors[name]
        with _opened(info.file) as file:
            return file.get_tensor(info.name)

    def lazy(self, name: str) -> LazyTensor:
        """Returns a tensor of which parts are read from the file when they are asked for."""
        info = self.tensors[name]

        def read(bounds: Bounds) -> np.ndarray:
            with _opened(info.file) as file:
                if not bounds:
                    return file.get_tensor(info.name)
                return file.get_slice(info.name)[tuple(slice(*pair) for pair in bounds)]

        return LazyTensor(info.shape, read)

    def add_tensors(self, subfolder: str) -> None:
        """Adds the tensors of a folder in this one to `tensors`, under names such as "2_Dense/linear.weight".

        Raises:
            MissingFileError: it has no safetensors file.
        """
        file = self.path / subfolder / _WEIGHTS
        if not file.is_file():
            raise MissingFileError(f"{self.path / subfolder} has no {_WEIGHTS}.")
        self.tensors |= {f"{subfolder}/{name}": info for name, info in _header(file).items()}

    def _tensors(self) -> dict[str, TensorInfo]:
        if (self.path / _INDEX).is_file():
            return self._sharded()
        if not (self.path / _WEIGHTS).is_file():
            pickled = next(iter(self.path.glob("*.bin")), None)
            reason = f"; {pickled.name} is a pickle, which can execute code: save it as safetensors" if pickled else ""
            raise MissingFileError(f"{self.path} has no {_WEIGHTS}{reason}.")
        return _header(self.path / _WEIGHTS)

    def _sharded(self) -> dict[str, TensorInfo]:
        files = self.json(_INDEX).get("weight_map")
        if not isinstance(files, dict) or not all(isinstance(file, str) for file in files.values()):
            raise CorruptFileError(f"{self.path / _INDEX} has no weight_map.")
        headers: dict[str, dict[str, TensorInfo]] = {}
        for name in sorted(set(files.values())):
            if pathlib.PurePath(name).name != name or name in (".", "..") or "\\" in name:
                raise UnsafePathError(f"{self.path / _INDEX} names {name!r}, which is not a file of the folder.")
            if not (self.path / name).is_file():
                raise MissingFileError(f"{self.path} lacks the shard {name}, which {_INDEX} names.")
            headers[name] = _header(self.path / name)
        for tensor, file in files.items():
            if tensor not in headers[file]:
                raise MissingTensorError(f"{self.path / file} lacks the tensor {tensor!r}, which {_INDEX} names.")
        return {tensor: headers[file][tensor] for tensor, file in files.items()}


def _renamed(tensors: dict[str, TensorInfo], path: pathlib.Path) -> dict[str, TensorInfo]:
    """Returns the tensors with current names; norms of BERT's first checkpoints have those of TensorFlow."""
    renamed: dict[str, TensorInfo] = {}
    for name, info in tensors.items():
        start, _, end = name.rpartition("LayerNorm.")
        current = f"{start}LayerNorm.{_OLD_NORM[end]}" if end in _OLD_NORM and start != name else name
        if renamed.setdefault(current, info) is not info:
            raise CorruptFileError(f"{path} has {current!r} twice, once under its old name.")
    return renamed


def find_folder(source: Path) -> pathlib.Path:
    """Returns the path of a folder, or of the local copy of a repository by huggingface_hub.

    Args:
        source: str or path of a folder; or the name of a repository, "owner/name".

    Raises:
        MissingFileError: there is no such folder, and the repository cannot be downloaded.
    """
    path = pathlib.Path(source)
    looks_local = isinstance(source, pathlib.Path) or path.is_absolute() or str(source).startswith(".")
    if path.exists() or looks_local or str(source).count("/") > 1:
        return path
    import huggingface_hub

    try:
        return pathlib.Path(
            huggingface_hub.snapshot_download(str(source), allow_patterns=_PATTERNS, ignore_patterns=_IGNORED)
        )
    except library_exceptions() as error:
        raise MissingFileError(
            f"{str(source)!r} is not a folder and cannot be downloaded: {one_line(error, 160)}"
        ) from error


def check_empty(folder: pathlib.Path) -> None:
    """Raises `CheckpointError` for a path where a folder cannot be written without losing something."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CheckpointError(f"{folder} is not empty.")


def _opened(file: pathlib.Path) -> safetensors.safe_open:
    import safetensors

    try:
        return safetensors.safe_open(file, framework="numpy")
    except (safetensors.SafetensorError, OSError, ValueError) as error:
        raise CorruptFileError(f"{file} cannot be read: {error}") from error


def _header(file: pathlib.Path) -> dict[str, TensorInfo]:
    import safetensors

    with _opened(file) as opened:
        try:
            slices = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118 (not a dict)
            return {name: TensorInfo(file, tuple(s.get_shape()), s.get_dtype(), name) for name, s in slices.items()}
        except (safetensors.SafetensorError, OSError, ValueError) as error:
            raise CheckpointError(f"{file} cannot be read: {error}") from error
