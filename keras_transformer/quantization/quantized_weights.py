"""The integers and scales that were chosen for the weights of a model, and files of them."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Container, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.quantization.blocks import Blocks
from keras_transformer.quantization.errors import WeightQuantizationError
from keras_transformer.utils.atomic_write import replacing_file
from keras_transformer.utils.types import Path

if TYPE_CHECKING:
    import keras

_KEY = "keras_transformer.quantized_weights"
_PARTS, _VALUE, _RANGE = ("codes", "scale", "minimum"), "value", "input_range"


class QuantizedWeights(Mapping[str, Blocks]):
    """The `Blocks` of weights by the paths of the variables. Equal is only the same object.

    The variables of the model have the values of these blocks, so that training, evaluation and generation in Keras compute
    with what files will have. `export(..., quantize="learned")` writes the same integers and scales.

    Args:
        blocks: dict of path to `Blocks`.
        unquantized: dict of path to array: the values of the other weights, such as biases and scales of norms, which AWQ,
            `smooth`, `rotate` and training change. With them, `apply` makes the quantized model out of the float model.
        input_ranges: dict of path to float: the largest magnitude of the inputs of a product, where training has learned a
            static one. Files round the inputs to 127 steps of it.

    Example:

    >>> import keras
    >>> from keras_transformer.quantization import WeightScheme, quantize_weights
    >>> model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(64, name="wide")], name="model")
    >>> weights = quantize_weights(model, WeightScheme(bits=4))
    >>> [(path, blocks.bits) for path, blocks in weights.items()]
    [('model/wide/kernel', 4)]
    """

    def __init__(
        self,
        blocks: Mapping[str, Blocks],
        unquantized: Mapping[str, np.ndarray] | None = None,
        input_ranges: Mapping[str, float] | None = None,
    ) -> None:
        self._blocks = dict(blocks)
        self.unquantized = dict(unquantized or {})
        self.input_ranges = dict(input_ranges or {})

    def __getitem__(self, path: str) -> Blocks:
        return self._blocks[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._blocks)

    def __len__(self) -> int:
        return len(self._blocks)

    # That of a mapping would compare arrays.
    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    @property
    def nbytes(self) -> int:
        """Bytes of the integers, packed, with their scales and minima."""
        sizes = (each.codes.size * each.bits // 8 + _bytes(each.scale) + _bytes(each.minimum) for each in self.values())
        return sum(sizes)

    @classmethod
    def of(cls, model: keras.Model) -> QuantizedWeights:
        """Those of a model that was quantized in this process.

        Raises:
            WeightQuantizationError: it was not.
        """
        found = getattr(model, "quantized_weights", None)
        if not isinstance(found, cls):
            raise WeightQuantizationError(
                f"{model.name!r} has no quantized weights: call quantization.quantize_weights first, or "
                "QuantizedWeights.load(path).apply(model)"
            )
        return found

    def apply(self, model: keras.Model) -> None:
        """Gives the variables of a model the values of the blocks, and the model this object as `quantized_weights`.

        The other weights get their values of `unquantized`.

        Raises:
            WeightQuantizationError: a path or a shape is not that of the model, which is then unchanged.
        """
        from keras_transformer.quantization.kernels import kernels_of

        kernels = {each.path: each for each in kernels_of(model)}
        for path, blocks in self.items():
            kernel = kernels.get(path)
            if kernel is None or (kernel.count, kernel.width) != (len(blocks.codes), blocks.codes[0].size):
                raise WeightQuantizationError(f"{model.name!r} has no weight {path!r} of {blocks.codes.shape}")
        others = {each.path: each for each in model.weights}
        for path, value in self.unquantized.items():
            if path not in others or tuple(others[path].shape) != value.shape:
                raise WeightQuantizationError(f"{model.name!r} has no weight {path!r} of {value.shape}")
        for path, blocks in self.items():
            kernels[path].assign(blocks.values)
        for path, value in self.unquantized.items():
            others[path].assign(value)
        model.quantized_weights = self

    def save(self, path: Path) -> None:
        """Writes a safetensors file; an existing one is replaced."""
        from safetensors.numpy import save_file

        tensors = {f"{name}/{_VALUE}": np.ascontiguousarray(value) for name, value in self.unquantized.items()}
        tensors |= {f"{name}/{_RANGE}": np.array([each], "float32") for name, each in self.input_ranges.items()}
        for name, blocks in self.items():
            for part in _PARTS:
                if getattr(blocks, part) is not None:
                    tensors[f"{name}/{part}"] = np.ascontiguousarray(getattr(blocks, part))
        record = {name: [each.zero, each.bits] for name, each in self.items()}
        with replacing_file(pathlib.Path(path)) as partial:
            save_file(tensors, partial, metadata={_KEY: json.dumps(record)})

    @classmethod
    def load(cls, path: Path) -> QuantizedWeights:
        """Reads a file of `save`.

        Raises:
            WeightQuantizationError: there is no such file, or it is another one.
        """
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(pathlib.Path(path), "numpy") as file:
                record = json.loads((file.metadata() or {})[_KEY])
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
            blocks = {name: _blocks(arrays, name, *map(int, record[name])) for name in record}
            ranges = {name: array.item() for name, array in _parts(arrays, _RANGE)}
            return cls(blocks, dict(_parts(arrays, _VALUE)), ranges)
        except (OSError, SafetensorError, KeyError, ValueError, TypeError) as error:
            raise WeightQuantizationError(f"'{path}' is no file of QuantizedWeights.save: {error}") from error


def values_beside(
    model: keras.Model, blocks: Mapping[str, Blocks], without: Container[int] = ()
) -> dict[str, np.ndarray]:
    """The values of the weights of a model that have no blocks, by path.

    Args:
        model: `keras.Model`.
        blocks: dict of path to `Blocks`.
        without: ids of variables to leave out.

    Raises:
        WeightQuantizationError: two of them have one path.
    """
    import keras

    from keras_transformer.quantization.kernels import check_paths

    others = [each for each in model.weights if each.path not in blocks and id(each) not in without]
    check_paths(others)
    return {each.path: keras.ops.convert_to_numpy(each) for each in others}


def _parts(arrays: Mapping[str, np.ndarray], kind: str) -> Iterator[tuple[str, np.ndarray]]:
    """The names and arrays of one kind."""
    for key, array in arrays.items():
        name, _, ending = key.rpartition("/")
        if ending == kind:
            yield name, array


def _bytes(array: np.ndarray | None) -> int:
    return 0 if array is None else array.nbytes


def _blocks(arrays: Mapping[str, np.ndarray], name: str, zero: int, bits: int) -> Blocks:
    codes, scale, minimum = (arrays.get(f"{name}/{part}") for part in _PARTS)
    if codes is None or scale is None or codes.dtype != np.uint8 or codes.ndim != 3 or scale.shape != codes.shape[:2]:
        raise ValueError(f"{name!r} has no codes with scales")
    if minimum is not None and minimum.shape != scale.shape:
        raise ValueError(f"{name!r} has minima of another shape than its scales")
    return Blocks(codes, scale, minimum, zero, bits)
