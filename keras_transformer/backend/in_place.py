"""Compiled functions that change a large state where it lies, on whichever backend Keras runs."""

import keras
from keras import ops


class InPlace:
    """A dict of tensors that compiled functions read and write, without a copy of it at any step.

    On TensorFlow they are variables: XLA updates its buffers, and without XLA single rows are gathered and scattered in
    them. On JAX they are donated. On other backends each step copies them.

    Args:
        make_state: function without arguments that returns the first state, a dict of tensors.
        variables: list of `keras.Variable`, which the functions read.
        jit_compile: bool. Whether TensorFlow compiles with XLA, once for each set of shapes; without it, once for all.

    Example:

    >>> import numpy as np
    >>> state = InPlace(lambda: {"total": ops.zeros((3, 1))}, [], jit_compile=False)
    >>> def add(state, take, put, rows):
    ...     rows = ops.expand_dims(rows, 1)
    ...     total = put(state["total"], rows, take(state["total"], rows[:, 0]) + 1.0)
    ...     return ops.cast(rows, "float32") * 2.0, {"total": total}
    >>> double = state.compiled(add, ["int32"])
    >>> double(np.array([0, 2], "int32")).ravel().tolist(), state.numpy()["total"].ravel().tolist()
    ([0.0, 4.0], [1.0, 0.0, 1.0])
    """

    def __init__(self, make_state, variables, jit_compile):
        self._make_state = make_state
        self._variables = variables
        self._jit_compile = jit_compile
        self._backend = keras.backend.backend()
        self._state = make_state()
        if self._backend == "tensorflow":
            import tensorflow as tf

            self._state = {name: tf.Variable(tensor, name=name) for name, tensor in self._state.items()}

    @property
    def needs_fixed_shapes(self):
        """Whether new shapes are compiled anew."""
        return self._backend == "jax" or (self._backend == "tensorflow" and self._jit_compile)

    def reset(self):
        """Goes back to the first state, whatever became of it."""
        fresh = self._make_state()
        if self._backend != "tensorflow":
            self._state = fresh
            return
        for name, variable in self._state.items():
            variable.assign(fresh[name])

    def numpy(self):
        """The state as numpy arrays."""
        return {name: ops.convert_to_numpy(tensor) for name, tensor in self._state.items()}

    def compiled(self, function, dtypes, ranks=None):
        """A function of arrays that runs on the state.

        Args:
            function: maps the state, `take`, `put` and tensors to `(result, next state)`. `take(tensor, indices)` gathers
                rows of the state, `put(tensor, indices, update)` scatters into it, as `ops.scatter_update` does.
            dtypes: list of str: of the arguments.
            ranks: list of int: of the arguments; 1 for each by default.

        Returns:
            Function of arrays that returns the result as a numpy array.
        """
        make = {"tensorflow": self._by_tensorflow, "jax": self._by_jax}.get(self._backend, self._eagerly)
        return make(function, dtypes, ranks or [1] * len(dtypes))

    def _by_tensorflow(self, function, dtypes, ranks):
        import tensorflow as tf

        def whole(*arguments):
            state = {name: variable.read_value() for name, variable in self._state.items()}
            result, state = function(state, _take, ops.scatter_update, *arguments)
            for name, variable in self._state.items():
                variable.assign(state[name])
            return result

        def by_rows(*arguments):
            return function(self._state, _take_of_variable, _put_into_variable, *arguments)[0]

        traced = tf.function(whole if self._jit_compile else by_rows, jit_compile=self._jit_compile, autograph=False)
        concrete = {}

        def call(*arguments):
            tensors = [tf.convert_to_tensor(each, dtype) for each, dtype in zip(arguments, dtypes, strict=True)]
            # Looked up here, as `tf.function` takes new shapes, which are meant, for a mistake and warns.
            key = tuple(tuple(tensor.shape) for tensor in tensors) if self._jit_compile else None
            if key not in concrete:
                shapes = key or [[None] * rank for rank in ranks]
                specs = [tf.TensorSpec(shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]
                concrete[key] = traced.get_concrete_function(*specs)
            return concrete[key](*tensors).numpy()

        return call

    def _by_jax(self, function, dtypes, ranks):
        import jax

        def stateless(state, values, *arguments):
            with keras.StatelessScope(state_mapping=list(zip(self._variables, values, strict=True))):
                return function(state, _take, ops.scatter_update, *arguments)

        traced = jax.jit(stateless, donate_argnums=0)

        def call(*arguments):
            arrays = [ops.convert_to_tensor(each, dtype) for each, dtype in zip(arguments, dtypes, strict=True)]
            result, self._state = traced(self._state, [variable.value for variable in self._variables], *arrays)
            return ops.convert_to_numpy(result)

        return call

    def _eagerly(self, function, dtypes, ranks):
        def call(*arguments):
            arrays = [ops.convert_to_tensor(each, dtype) for each, dtype in zip(arguments, dtypes, strict=True)]
            result, self._state = function(self._state, _take, ops.scatter_update, *arrays)
            return ops.convert_to_numpy(result)

        return call


def _take(tensor, indices):
    return ops.take(tensor, indices, axis=0)


def _take_of_variable(variable, indices):
    # Without reading the variable as a whole, which would make its next update copy it.
    return variable.sparse_read(indices)


def _put_into_variable(variable, indices, update):
    variable.scatter_nd_update(indices, update)
    return variable
