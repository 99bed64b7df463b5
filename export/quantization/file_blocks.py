"""The blocks of a GGUF file that weights of a model were read from, found by their values."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from keras_transformer.checkpoints.gguf.blocks import DECODED, decoded
from keras_transformer.checkpoints.gguf.container import Container
from keras_transformer.export.quantization.known_blocks import KnownBlocks
from keras_transformer.quantization.blocks import Blocks
from keras_transformer.utils.types import Path


class FileBlocks(KnownBlocks):
    """The matrices of a GGUF file by their rows.

    Args:
        path: str or path of the file.

    Raises:
        MissingFileError, CorruptFileError: see `checkpoints.from_gguf`.

    Example:

    >>> import gguf
    >>> path, kind = "/tmp/keras_transformer_doctest.gguf", gguf.GGMLQuantizationType.Q8_0
    >>> writer = gguf.GGUFWriter(path, "llama")
    >>> writer.add_tensor("weight", gguf.quantize(np.full((2, 32), 12.7, "float32"), kind), raw_dtype=kind)
    >>> writer.write_header_to_file(), writer.write_kv_data_to_file(), writer.write_tensors_to_file(), writer.close()
    (None, None, None, None)
    >>> blocks = FileBlocks(path)
    >>> blocks.find(np.full((1, 32), 127 * np.float32(np.float16(0.1)))).codes[0, 0, :2].tolist()
    [255, 255]
    """

    def __init__(self, path: Path) -> None:
        self._container = Container(path)
        super().__init__(str(self._container.path), _matrices(self._container))

    def kind(self, name: str) -> str:
        """ggml's name of the type of a tensor."""
        return self._container.tensors[name].kind

    def has_blocks(self, name: str) -> bool:
        return self.kind(name) in DECODED

    def _blocks_of(self, name: str, indices: np.ndarray) -> Blocks:
        blocks = self._container.blocks(name)
        return decoded(blocks.reshape(-1, blocks.shape[-1])[indices], self.kind(name))


def _matrices(container: Container) -> Iterator[tuple[str, np.ndarray]]:
    for name, tensor in container.tensors.items():
        if len(tensor.shape) > 1:
            yield name, np.asarray(container.read(name), "float32").reshape(-1, tensor.shape[-1])
