"""State that compiled functions update in place, on any Keras backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
from keras import ops

from keras_transformer.backend.compilation.compiling import (
    Function,
    ModelStructure,
    Recompiled,
    needs_fixed_shapes,
    tracing_lock,
)
from keras_transformer.backend.compilation.xla import compiled_by_xla
from keras_transformer.utils.types import Tensor

if TYPE_CHECKING:
    from keras.layers import Layer


class InPlace:
    """A dict of tensors that compiled functions read and update without copying it.

    On TensorFlow the tensors are variables: XLA updates their buffers, and without XLA single rows are gathered and
    scattered. On JAX they are donated. On other backends each call copies them.

    Args:
        make_state: function without arguments that returns the initial state, a dict of tensors.
        model: `keras.layers.Layer` or `keras.Model` whose variables the functions read, or None. When variables are added
            to it or removed, the functions are compiled again.
        jit_compile: bool. Whether TensorFlow compiles with XLA, once for each set of shapes; without XLA it compiles once.

    Example:

    >>> import numpy as np
    >>> state = InPlace(lambda: {"total": ops.zeros((3, 1))}, None, jit_compile=False)
    >>> def add(state, take, put, rows):
    ...     rows = ops.expand_dims(rows, 1)
    ...     total = put(state["total"], rows, take(state["total"], rows[:, 0]) + 1.0)
    ...     return ops.cast(rows, "float32") * 2.0, {"total": total}
    >>> double = state.compiled(add, ["int32"])
    >>> double(np.array([0, 2], "int32")).ravel().tolist(), state.numpy()["total"].ravel().tolist()
    ([0.0, 4.0], [1.0, 0.0, 1.0])
    """

    def __init__(
        self, make_state: Callable[[], dict[str, Tensor]], model: Layer | None, jit_compile: bool | str
    ) -> None:
        self._make_state = make_state
        self.structure = ModelStructure(model)
        self._jit_compile = jit_compile
        self._backend = keras.backend.backend()
        self._state: dict[str, keras.Variable] = make_state()
        if self._backend == "tensorflow":
            import tensorflow as tf

            self._state = {name: tf.Variable(tensor, name=name) for name, tensor in self._state.items()}

    @property
    def needs_fixed_shapes(self) -> bool:
        """Whether each new set of shapes is compiled."""
        return needs_fixed_shapes(self._jit_compile)

    def reset(self) -> None:
        """Restores the initial state."""
        fresh = self._make_state()
        if self._backend != "tensorflow":
            self._state = fresh
            return
        for name, variable in self._state.items():
            variable.assign(fresh[name])

    def numpy(self) -> dict[str, np.ndarray]:
        """Returns the state as numpy arrays."""
        return {name: ops.convert_to_numpy(tensor) for name, tensor in self._state.items()}

    def compiled(
        self, function: Function, dtypes: list[str], ranks: list[int] | None = None
    ) -> Callable[..., np.ndarray]:
        """Compiles a function that reads and updates the state.

        Args:
            function: maps the state, `take`, `put` and tensors to `(result, next state)`. `take(tensor, indices)` gathers
                rows of the state; `put(tensor, indices, update)` scatters into it, as `ops.scatter_update` does.
            dtypes: list of str: dtypes of the arguments.
            ranks: list of int: ranks of the arguments. Default 1 for each.

        Returns:
            Function of arrays that returns the result as a numpy array.
        """
        makers = {"tensorflow": self._by_tensorflow, "jax": self._by_jax}
        make = makers.get(self._backend, self._eagerly)
        ranks = ranks or [1] * len(dtypes)
        return Recompiled(lambda variables: make(function, dtypes, ranks, variables), self.structure)

    def _by_tensorflow(
        self, function: Function, dtypes: list[str], ranks: list[int], _: list[keras.Variable]
    ) -> Function:
        import tensorflow as tf

        def whole(*arguments: object) -> Any:
            state = {name: variable.read_value() for name, variable in self._state.items()}
            result, state = function(state, _take, ops.scatter_update, *arguments)
            for name, variable in self._state.items():
                variable.assign(state[name])
            return result

        def by_rows(*arguments: object) -> Any:
            result, state = function(self._state, _take_of_variable, _put_into_variable, *arguments)
            for name, variable in self._state.items():
                if state[name] is not variable:  # A new tensor, and not `put` of the old one.
                    variable.assign(state[name])
            return result

        written = compiled_by_xla()(whole) if self._jit_compile else by_rows
        traced = tf.function(written, jit_compile=self._jit_compile, autograph=False)
        concrete: dict[object, Function] = {}

        def call(*arguments: object) -> np.ndarray:
            tensors = [tf.convert_to_tensor(each, dtype) for each, dtype in zip(arguments, dtypes, strict=True)]
            # Kept here, because `tf.function` warns of retracing when it meets many shapes.
            key = tuple(tuple(tensor.shape) for tensor in tensors) if self._jit_compile else None
            if key not in concrete:
                shapes = key or [[None] * rank for rank in ranks]
                specs = [tf.TensorSpec(shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]
                with tracing_lock:
                    if key not in concrete:
                        concrete[key] = traced.get_concrete_function(*specs)
            return concrete[key](*tensors).numpy()

        return call

    def _by_jax(self, function: Function, dtypes: list[str], _: list[int], variables: list[keras.Variable]) -> Function:
        import jax

        def stateless(state: dict[str, Tensor], values: list[Tensor], *arguments: object) -> Any:
            with keras.StatelessScope(state_mapping=list(zip(variables, values, strict=True))):
                return function(state, _take, ops.scatter_update, *arguments)

        traced = jax.jit(compiled_by_xla()(stateless), donate_argnums=0)

        def call(*arguments: object) -> np.ndarray:
            arrays = [ops.convert_to_tensor(each, dtype) for each, dtype in zip(arguments, dtypes, strict=True)]
            result, self._state = traced(self._state, [variable.value for variable in variables], *arrays)
            return ops.convert_to_numpy(result)

        return call

    def _eagerly(
        self, function: Function, dtypes: list[str], _: list[int], variables: list[keras.Variable]
    ) -> Function:
        def call(*arguments: object) -> np.ndarray:
            arrays = [ops.convert_to_tensor(each, dtype) for each, dtype in zip(arguments, dtypes, strict=True)]
            result, self._state = function(self._state, _take, ops.scatter_update, *arrays)
            return ops.convert_to_numpy(result)

        return call


def _take(tensor: Tensor, indices: Tensor) -> Tensor:
    return ops.take(tensor, indices, axis=0)


def _take_of_variable(variable: keras.Variable, indices: Tensor) -> Tensor:
    # Reading the whole variable would make its next update copy it.
    return variable.sparse_read(indices)


def _put_into_variable(variable: keras.Variable, indices: Tensor, update: Tensor) -> keras.Variable:
    variable.scatter_nd_update(indices, update)
    return variable
