"""Compiled functions of a model on any Keras backend, recompiled when the variables of the model change."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

import keras

from keras_transformer.backend import keras_private
from keras_transformer.backend.compilation.xla import compiled_by_xla
from keras_transformer.utils.types import Tensor

if TYPE_CHECKING:
    import tensorflow as tf
    from keras.layers import Layer

Function = Callable[..., Any]
DynamicAxes = Callable[..., tuple[object, ...]]

# One trace at a time: a layer may hold state while it is traced.
tracing_lock = threading.RLock()


class ModelStructure:
    """The variables and the adapters of a model, whose changes make compiled functions stale.

    A compiled function reads new values of the variables, but not variables that were added or removed, as `add_lora`,
    `merge_lora` and `quantize` do.

    Args:
        model: `keras.layers.Layer` or `keras.Model`, built; None for a function that reads no variables.

    Attributes:
        variables: list of `keras.Variable`: those of the model at the last `version` call.
        last_version: int. The result of that call.

    Example:

    >>> model = keras.Sequential([keras.layers.Dense(2)])
    >>> _ = model.build((None, 3))
    >>> structure = ModelStructure(model)
    >>> structure.version(), structure.version()
    (0, 0)
    >>> model.layers[0].enable_lora(1)
    >>> structure.version()
    1
    """

    def __init__(self, model: Layer | None) -> None:
        self._model = model
        self.last_version = 0
        self._lock = threading.Lock()
        self.variables, self._adapters = self._read()

    def version(self) -> int:
        """Returns how often the structure has changed; looks at the model."""
        variables, adapters = self._read()
        with self._lock:
            if adapters != self._adapters or not _same_objects(variables, self.variables):
                self.variables, self._adapters = variables, adapters
                self.last_version += 1
            return self.last_version

    def _read(self) -> tuple[list[keras.Variable], list[tuple]]:
        if self._model is None:
            return [], []
        layers = [layer for layer in keras_private.flatten_layers(self._model) if getattr(layer, "lora_enabled", False)]
        # Held, not their ids: Python uses the id of a deleted variable again.
        return self._model.variables, [(id(layer), getattr(layer, "lora_rank", None)) for layer in layers]


class Recompiled:
    """A compiled function that is recompiled when the structure of its model has changed.

    Args:
        make: function of a list of `keras.Variable` that returns the compiled function.
        structure: `ModelStructure`.
        looks: bool. Whether each call looks at the model, which takes some 30 µs a layer. If False, the owner of
            the structure calls its `version`, once for many calls.
    """

    def __init__(
        self, make: Callable[[list[keras.Variable]], Function], structure: ModelStructure, looks: bool = True
    ) -> None:
        self._make, self._structure, self._looks = make, structure, looks
        self._compiled = structure.version(), make(structure.variables)

    def __call__(self, *arguments: object) -> Any:
        version = self._structure.version() if self._looks else self._structure.last_version
        made_for, function = self._compiled
        if made_for != version:
            function = self._make(self._structure.variables)
            self._compiled = version, function
        return function(*arguments)


def needs_fixed_shapes(jit_compile: bool | str) -> bool:
    """Returns whether each new set of shapes is compiled: on JAX, and by XLA on TensorFlow."""
    backend = keras.backend.backend()
    return backend == "jax" or (backend == "tensorflow" and bool(jit_compile))


def compiled(
    function: Callable[..., object],
    model: Layer,
    jit_compile: bool | str,
    structure: ModelStructure | None = None,
    dynamic_axes: DynamicAxes | None = None,
) -> Callable[..., keras.KerasTensor]:
    """Compiles a function of tensors that reads the variables of a model; one trace for each set of shapes.

    Args:
        function: maps tensors, and dicts of them, to the same; it changes no variable.
        model: `keras.layers.Layer` or `keras.Model`, built. When variables are added to it or removed, the function is
            compiled again.
        jit_compile: bool. Whether TensorFlow compiles with XLA; JAX always does.
        structure: `ModelStructure` of the model whose `version` the caller calls before a series of calls; None to look
            for changes in each call.
        dynamic_axes: function of the arguments that returns the same structure with a tuple of axes in place of each tensor:
            those whose sizes make no new trace, unless `needs_fixed_shapes`. None for none.

    Returns:
        A function of the same arguments.
    """
    if needs_fixed_shapes(jit_compile):
        dynamic_axes = None
    makers: dict[str, Callable[[list[keras.Variable]], Function]] = {
        "tensorflow": lambda _: _compiled_by_tensorflow(function, jit_compile, dynamic_axes),
        "jax": lambda variables: _compiled_by_jax(function, variables),
    }
    make = makers.get(keras.backend.backend())
    if make is None:
        return function
    return Recompiled(make, structure or ModelStructure(model), looks=structure is None)


def _compiled_by_tensorflow(
    function: Function, jit_compile: bool | str, dynamic_axes: DynamicAxes | None = None
) -> Function:
    import tensorflow as tf

    traces: dict[Hashable, Function] = {}
    concrete: dict[Hashable, Function] = {}

    def trace(arguments: Sequence[object]) -> Function:
        specs = tf.nest.map_structure(tf.TensorSpec.from_tensor, arguments)
        if dynamic_axes is not None:
            axes = dynamic_axes(*arguments)
            specs = keras.tree.map_structure_up_to(arguments, _with_open_axes, specs, axes)
        key = tuple((tuple(spec.shape), spec.dtype) for spec in tf.nest.flatten(specs))
        if key not in traces:
            # A function of its own: one with several traces would choose that of open sizes for fixed ones.
            written = compiled_by_xla()(function) if jit_compile else function
            traced = tf.function(written, jit_compile=jit_compile, autograph=False)
            traces[key] = traced.get_concrete_function(*specs)
        return traces[key]

    def call(*arguments: object) -> Any:
        arguments = tf.nest.map_structure(tf.convert_to_tensor, arguments)
        shapes = tuple((tensor.shape, tensor.dtype) for tensor in tf.nest.flatten(arguments))
        # Kept here, because `tf.function` warns of retracing when it meets many shapes.
        if shapes not in concrete:
            with tracing_lock:
                if shapes not in concrete:
                    concrete[shapes] = trace(arguments)
        return concrete[shapes](*arguments)

    return call


def _with_open_axes(spec: tf.TensorSpec, axes: tuple[int, ...]) -> tf.TensorSpec:
    """Returns a `tf.TensorSpec` without the sizes of these axes."""
    return type(spec)([None if axis in axes else size for axis, size in enumerate(spec.shape)], spec.dtype)


def _compiled_by_jax(function: Function, variables: list[keras.Variable]) -> Function:
    import jax

    def stateless(values: list[Tensor], *arguments: object) -> Any:
        with keras.StatelessScope(state_mapping=list(zip(variables, values, strict=True))):
            return function(*arguments)

    traced = jax.jit(compiled_by_xla()(stateless))
    return lambda *arguments: traced([variable.value for variable in variables], *arguments)


def _same_objects(one: list, other: list) -> bool:
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))
