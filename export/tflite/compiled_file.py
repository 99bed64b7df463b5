"""A TFLite file in LiteRT's `CompiledModel`, which all languages have, with its weights packed once for all signatures."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from keras_transformer.export.tflite.weight_cache import WeightCache
from keras_transformer.utils.captured_stderr import quiet_exit

if TYPE_CHECKING:
    from ai_edge_litert.compiled_model import CompiledModel
    from ai_edge_litert.environment import Environment
    from ai_edge_litert.tensor_buffer import TensorBuffer


class CacheTensor:
    """A tensor that signatures hand on to each other: in numpy until the first takes it, from then on in a buffer.

    Args:
        values: an array, or a buffer of LiteRT's.
        shape: shape of the tensor; that of the array where None.
        dtype: its type, likewise.
    """

    def __init__(
        self,
        values: np.ndarray | TensorBuffer,
        shape: tuple[int, ...] = (),
        dtype: np.dtype[np.generic] | None = None,
    ) -> None:
        is_array = isinstance(values, np.ndarray)
        self.shape: tuple[int, ...] = values.shape if is_array else shape
        self.dtype = values.dtype if is_array else np.dtype(dtype)
        self._values = values

    def numpy(self) -> np.ndarray:
        """Its values; a copy of those of a buffer."""
        if isinstance(self._values, np.ndarray):
            return self._values
        return self._values.read(int(np.prod(self.shape)), self.dtype).reshape(self.shape)

    def buffer(self, empty: TensorBuffer) -> TensorBuffer:
        """Its buffer; an array's values are written into an empty one, which it has from then on."""
        if isinstance(self._values, np.ndarray):
            empty.write(self._values)
            self._values = empty
        return self._values


class _Interface(NamedTuple):
    """Inputs and outputs of a signature in the order of the file: shapes and types by name.

    `passed` has the outputs that are inputs as they are, with the names of these.
    """

    number: int
    inputs: dict[str, tuple[tuple[int, ...], np.dtype[np.generic]]]
    outputs: dict[str, tuple[tuple[int, ...], np.dtype[np.generic]]]
    passed: dict[str, str]


class CompiledFile:
    """The signatures of fixed shapes of a file. One thread at a time may call them.

    Args:
        num_threads: threads for one call.
        weights: `WeightCache` of the file.
    """

    def __init__(self, num_threads: int, weights: WeightCache) -> None:
        self._model = weights.open(functools.partial(_opened, num_threads))
        self._interface = functools.cache(self._read_interface)
        self._kept: dict[tuple[str, bool, str], TensorBuffer] = {}

    def run(
        self,
        signature: str,
        arrays: Mapping[str, np.ndarray],
        cache: Mapping[str, CacheTensor] = MappingProxyType({}),
        in_place: Collection[str] = (),
    ) -> dict[str, np.ndarray | CacheTensor]:
        """Runs a signature.

        Args:
            signature: its name.
            arrays: dict of the names of the other inputs to arrays.
            cache: dict of name to `CacheTensor`: inputs that are not copied; outputs of these names are returned as such.
            in_place: names of those that are overwritten. No later operator of the graph may read what they were.

        Raises:
            ValueError: an input is missing, or has another shape or type.
        """
        interface = self._interface(signature)
        _check(interface, {**arrays, **cache})
        inputs = {
            name: cache[name].buffer(self._empty(signature, True, name))
            if name in cache
            else self._written(signature, name, arrays[name])
            for name in interface.inputs
        }
        # LiteRT has one memory for a tensor that is an input and an output.
        shared = {**{name: name for name in in_place}, **interface.passed}
        outputs = {
            name: inputs[shared[name]]
            if name in shared
            else self._empty(signature, False, name)
            if name in cache
            else self._buffer(signature, False, name)
            for name in interface.outputs
        }
        self._model.run_by_index(interface.number, list(inputs.values()), list(outputs.values()))
        found = {name: CacheTensor(outputs[name], *each) for name, each in interface.outputs.items()}
        found |= {
            name: cache[name] for name, source in shared.items() if name == source and name in cache and name in found
        }
        return {name: each if name in cache else each.numpy() for name, each in found.items()}

    def _written(self, signature: str, name: str, array: np.ndarray) -> TensorBuffer:
        """The kept buffer of an input, with the values of an array."""
        buffer = self._buffer(signature, True, name)
        buffer.write(array)
        return buffer

    def _buffer(self, signature: str, is_input: bool, name: str) -> TensorBuffer:
        """A buffer that every call uses."""
        key = signature, is_input, name
        if key not in self._kept:
            self._kept[key] = self._empty(*key)
        return self._kept[key]

    def _empty(self, signature: str, is_input: bool, name: str) -> TensorBuffer:
        make = self._model.create_input_buffer_by_name if is_input else self._model.create_output_buffer_by_name
        return make(signature, name)

    def _read_interface(self, signature: str) -> _Interface:
        names = self._model.get_signature_list()[signature]
        sides = (
            (names["inputs"], self._model.get_input_tensor_details(signature)),
            (names["outputs"], self._model.get_output_tensor_details(signature)),
        )
        specs = [
            {name: (tuple(details[name]["shape"]), np.dtype(details[name]["dtype"])) for name in ordered}
            for ordered, details in sides
        ]
        places = [{details[name]["index"]: name for name in ordered} for ordered, details in sides]
        passed = {name: places[0][index] for index, name in places[1].items() if index in places[0]}
        return _Interface(self._model.get_signature_index(signature), specs[0], specs[1], passed)


def _opened(num_threads: int, path: pathlib.Path, weights: str) -> CompiledModel:
    """The file on the CPU, with packed weights in a file, in memory or for each signature: see `WeightCache.open`."""
    from ai_edge_litert.compiled_model import CompiledModel
    from ai_edge_litert.options import CpuOptions, HardwareAccelerator, Options

    cpu = CpuOptions(num_threads=num_threads, xnnpack_weight_cache_path=weights)
    options = Options(HardwareAccelerator.CPU, cpu_options=cpu)
    return CompiledModel.from_file(str(path), environment=_environment(), options=options)


@functools.cache
def _environment() -> Environment:
    """LiteRT's environment, one for all files: it prints on stderr when it begins and when it ends."""
    from ai_edge_litert.environment import Environment

    quiet_exit()
    return Environment.create()


def _check(interface: _Interface, given: Mapping[str, np.ndarray | CacheTensor]) -> None:
    """Raises for inputs that are not those of a signature: LiteRT would read or write beyond them."""
    if given.keys() != interface.inputs.keys():
        raise ValueError(f"the inputs are {', '.join(interface.inputs)}. Received: {', '.join(given)}")
    for name, (shape, dtype) in interface.inputs.items():
        found = given[name]
        if found.shape != shape or found.dtype != dtype:
            raise ValueError(f"'{name}' is {dtype} of shape {shape}. Received: {found.dtype} of shape {found.shape}")
