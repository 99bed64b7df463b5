"""Check that operations without a cache compute each token independently of the others."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import keras
import numpy as np
from keras import ops

from keras_transformer.models.transforms.known_operations import is_known
from keras_transformer.utils.errors import library_exceptions, one_line
from keras_transformer.utils.types import Tensor

if TYPE_CHECKING:
    from keras_transformer.backend.keras_private.graphs import Node

_BATCH_SIZE = 2
_LENGTH = 6
_SEED = 0


@dataclasses.dataclass
class _Value:
    """Values of one symbolic tensor.

    Attributes:
        runs: list of tensors: for the whole sequence, then for each part of it; None until they are computed.
        is_per_token: bool. Whether axis 1 is the token axis, and each token depends on the same token alone.
        is_constant: bool. Whether the value is the same in every run.
        is_past: bool. Whether it is cached data of all previous tokens, such as shared keys.
        culprit: node upstream that mixed tokens, or None.
    """

    runs: list[Tensor] | None = None
    is_per_token: bool = False
    is_constant: bool = False
    is_past: bool = False
    culprit: object = None


def check_per_token(
    nodes: Iterable[Node],
    inputs: dict[int, keras.KerasTensor],
    constants: dict[int, Tensor],
    output: keras.KerasTensor,
    has_cache: Callable[[Node], bool],
    takes_positions: Callable[[Node], bool],
) -> None:
    """Checks that nodes without a cache compute each token independently of the others.

    Common layers are known to. Any other layer or operation runs on random tokens, with random weights: on the whole
    sequence, and on parts of it. Both must agree. Weights are random because trained ones may hide a path, such as a gate
    that is initialized with zeros.

    Args:
        nodes: Functional nodes that depend on the new tokens, in the order of computation.
        inputs: dict of tensor id to symbolic input that holds the new tokens.
        constants: dict of tensor id to the value of an input that is the same for every step.
        output: symbolic output of the model.
        has_cache: function of a node: whether its layer has a cache.
        takes_positions: function of a node: whether its layer is called with `positions`.

    Raises:
        ValueError: an operation mixes tokens; the message contains its name and type.
    """
    nodes = list(nodes)
    probe = _Probe(nodes, inputs, constants, has_cache, takes_positions)
    # In a separate thread: the caller may be tracing a graph, or inside a `keras.StatelessScope`.
    with ThreadPoolExecutor(1) as executor:
        executor.submit(probe.run, output).result()


class _Probe:
    """State of one check."""

    def __init__(
        self,
        nodes: list[Node],
        inputs: dict[int, keras.KerasTensor],
        constants: dict[int, Tensor],
        has_cache: Callable[[Node], bool],
        takes_positions: Callable[[Node], bool],
    ) -> None:
        self.nodes, self.has_cache, self.takes_positions = nodes, has_cache, takes_positions
        self.random = np.random.default_rng(_SEED)
        sizes = [getattr(node.operation, "input_dim", None) for node in nodes]
        self.vocabulary_size = min((size for size in sizes if isinstance(size, int)), default=2)
        self.length = next((tensor.shape[1] for tensor in inputs.values() if tensor.shape[1]), _LENGTH)
        parts = [range(start, start + 1) for start in range(self.length)]
        half = self.length // 2
        self.parts = [range(self.length), *parts, *(part for part in (range(half), range(half, self.length)) if part)]
        self.values: dict[int, _Value | None] = {each: _Value(is_per_token=True) for each in inputs}
        for each, value in constants.items():
            self.values[each] = _Value([value] * len(self.parts), is_constant=True)

    def run(self, output: keras.KerasTensor) -> None:
        for node in self.nodes:
            given = [self.values.setdefault(id(tensor), None) for tensor in node.input_tensors]
            if all(value is None for value in given):
                self._set(node, None)
            elif self.has_cache(node):
                for tensor in node.input_tensors:
                    self._require(tensor, node)
                if any(self._is_past(tensor) for tensor in node.outputs):
                    self._read(node)
                else:
                    self._set(node, _Value(is_per_token=True))
            elif all(value is None or value.is_per_token for value in given) and is_known(node):
                self._set(node, _Value(is_per_token=True))
            else:
                self._compute(node, given)
        self._require(output, None)

    def _set(self, node, value):
        for tensor in node.outputs:
            self.values[id(tensor)] = value and dataclasses.replace(value)

    def _require(self, tensor, consumer):
        value = self.values[id(tensor)]
        if value is None or value.is_per_token or (consumer is not None and (value.is_constant or value.is_past)):
            return
        raise ValueError(_message(value.culprit))

    def _is_past(self, tensor):
        """Whether an output of a layer with a cache is its cached data, not one value per token."""
        return len(tensor.shape) > 3 or tensor.shape[1] not in (None, self.length)

    def _read(self, node):
        """Runs a layer that returns cached data on consecutive parts of a sequence."""
        call, cache, results = self._function(node), {}, []
        for index, part in enumerate(self.parts):
            if part.start == 0:
                cache = node.operation.init_cache(_BATCH_SIZE, self.length)
            args, kwargs = self._arguments(node, index)
            outputs, cache = call(*args, **kwargs, cache=cache, cache_index=ops.full((), part.start, "int32"))
            results.append(keras.tree.flatten(outputs))
        for tensor, *runs in zip(node.outputs, *results, strict=True):
            self.values[id(tensor)] = _Value(runs, is_past=True)

    def _compute(self, node, given):
        """Runs a node without a cache and classifies its outputs."""
        call, results = self._function(node), []
        for index, part in enumerate(self.parts):
            args, kwargs = self._arguments(node, index)
            try:
                results.append(keras.tree.flatten(call(*args, **kwargs)))
            except library_exceptions() as error:
                raise ValueError(f"{_message(node)} It fails on {len(part)} tokens: {one_line(error, 200)}") from error
        culprit = next((value.culprit for value in given if value is not None and value.culprit is not None), node)
        for tensor, *runs in zip(node.outputs, *results, strict=True):
            value = self._classify(runs)
            value.culprit = None if value.is_per_token or value.is_constant else culprit
            self.values[id(tensor)] = value

    def _arguments(self, node, index):
        """The arguments of a node for one part of the sequence."""
        part, values = self.parts[index], {}
        for tensor in node.input_tensors:
            value = self.values[id(tensor)]
            values[id(tensor)] = None if value is None else self._runs(value, tensor)[index]
        args, kwargs = node.arguments.fill_in(values)
        positions = np.arange(part.start, part.stop, dtype="int32")[None].repeat(_BATCH_SIZE, 0)
        return args, {**kwargs, "positions": ops.convert_to_tensor(positions)} if self.takes_positions(node) else kwargs

    def _runs(self, value: _Value, tensor: keras.KerasTensor) -> list[Tensor]:
        """The values of a tensor in each run; random tokens if nothing has computed it."""
        if value.runs is None:
            whole = self._random_tokens(tensor)
            value.runs = [whole[:, part.start : part.stop] for part in self.parts]
        return value.runs

    def _classify(self, runs):
        arrays = [_array(run) for run in runs]
        whole = arrays[0]
        if all(array.shape == whole.shape and _close(array, whole) for array in arrays):
            return _Value(runs, is_constant=True)
        fits = all(
            array.ndim > 1 and array.shape[1] == len(part) for array, part in zip(arrays, self.parts, strict=True)
        )
        if not fits:
            return _Value(runs)
        same = all(
            array.shape == whole[:, part.start : part.stop].shape
            and _close(array, whole[:, part.start : part.stop], whole)
            for array, part in zip(arrays, self.parts, strict=True)
        )
        return _Value(runs, is_per_token=same)

    def _random_tokens(self, tensor):
        """Random tokens `(B, T, ...)` in the shape and dtype of a symbolic tensor."""
        shape = (_BATCH_SIZE, self.length, *(size or self.length for size in tensor.shape[2:]))
        return ops.convert_to_tensor(self._random_array(shape, tensor.dtype), dtype=tensor.dtype)

    def _random_array(self, shape, dtype):
        if dtype == "bool":
            return self.random.random(shape) < 0.5
        if "int" in dtype:
            return self.random.integers(0, self.vocabulary_size, shape).astype("int32")
        return self.random.normal(size=shape).astype("float32")

    def _function(self, node):
        """The operation of a node; a layer with random weights, and without changes of its state."""
        layer = node.operation
        if not isinstance(layer, keras.layers.Layer):
            return layer
        trainable = [0.5 * self._random_array(tuple(v.shape), "float32") for v in layer.trainable_variables]
        others = [
            self.random.uniform(0.5, 1.5, tuple(v.shape)) if "float" in v.dtype else v.value
            for v in layer.non_trainable_variables
        ]

        def call(*args, **kwargs):
            return layer.stateless_call(trainable, others, *args, **kwargs)[0]

        return call


def _array(tensor):
    return np.asarray(ops.convert_to_numpy(tensor)).astype("float64")


def _close(found, expected, scale_of=None):
    """Whether two arrays differ by no more than rounding."""
    scale = np.abs(expected if scale_of is None else scale_of)
    scale = scale[np.isfinite(scale)].max(initial=1e-6)
    return np.allclose(found, expected, rtol=0, atol=1e-3 * scale, equal_nan=True)


def _message(node):
    name, kind = node.operation.name, type(node.operation).__name__
    return (
        f"{name!r} ({kind}) mixes tokens and has no cache: its output for a token depends on other tokens, so the model "
        "cannot decode token by token. Use a layer with a cache, such as `DecoderBlock` or `MultiHeadAttention`."
    )
