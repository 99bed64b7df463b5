"""The tensors of a model, as its checkpoint has them."""

from __future__ import annotations

import keras
import numpy as np

from keras_transformer.checkpoints.checkpoint import Checkpoint
from keras_transformer.checkpoints.transfers import Transfer

_DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "U8": "uint8"}


class TensorsOfModel:
    """The tensors of a model by their names in its checkpoint, each computed on access.

    Args:
        transfers: list of `Transfer`.
        checkpoint: `Checkpoint`.

    Attributes:
        names: list of str: those of the tensors, without duplicates and unused ones.
    """

    def __init__(self, transfers: list[Transfer], checkpoint: Checkpoint) -> None:
        self._dtypes, self._names, self._unused = checkpoint.dtypes, checkpoint.names, checkpoint.unused
        self._sources = {
            name: (transfer, index) for transfer in transfers for index, name in enumerate(transfer.theirs)
        }
        self.names = list(self._sources)
        self._last: tuple[Transfer, list[np.ndarray]] | None = None
        for name, known in checkpoint.architecture.tied.items():
            found = [source for source in ((known,) if isinstance(known, str) else known) if source in self._sources]
            if found and name in self._dtypes:
                self._sources.setdefault(name, self._sources[found[0]])

    def sizes(self) -> dict[str, int]:
        """Returns a dict of name to bytes, of unused tensors too."""
        found = {name: int(np.prod(self.shape(name))) * self.dtype(name).itemsize for name in self._sources}
        return found | {name: array.nbytes for name, array in self._unused.items()}

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns the shape of a tensor of the model."""
        transfer, index = self._sources[name]
        return tuple(transfer.layout.shapes(transfer.shapes)[index])

    def name_in_file(self, name: str) -> str:
        """Returns the name of a tensor in the original file."""
        return self._names.get(name, name)

    def __getitem__(self, name: str) -> np.ndarray:
        if name in self._unused:
            return self._unused[name]
        transfer, index = self._sources[name]
        # Not ascontiguousarray, which adds an axis to a scalar.
        return self._written(transfer)[index].astype(self.dtype(name), order="C")

    def _written(self, transfer: Transfer) -> list[np.ndarray]:
        """Returns the tensors of a transfer; they are kept until those of another are asked for."""
        if self._last is None or self._last[0] is not transfer:
            weights = [keras.ops.convert_to_numpy(variable.value) for variable in transfer.variables]
            self._last = transfer, transfer.layout.write(weights)
        return self._last[1]

    def dtype(self, name: str) -> np.dtype:
        """Returns the type of a tensor of the model in its checkpoint, or of its weight if it is new."""
        import ml_dtypes

        dtype = _DTYPES.get(self._dtypes.get(name, "")) or self._sources[name][0].variables[0].dtype
        return np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
