"""Compiling a pure function of tensors on whichever backend Keras runs."""

import keras


def compiled(function, variables, jit_compile):
    """`function`, traced once for each set of shapes.

    Args:
        function: maps tensors, and dicts of them, to the same; it reads `variables` and changes none.
        variables: list of `keras.Variable`.
        jit_compile: bool. Whether TensorFlow compiles the trace with XLA; JAX always does.

    Returns:
        A function of the same arguments.
    """
    backend = keras.backend.backend()
    if backend == "tensorflow":
        return _compiled_by_tensorflow(function, jit_compile)
    if backend == "jax":
        return _compiled_by_jax(function, variables)
    return function


def _compiled_by_tensorflow(function, jit_compile):
    import tensorflow as tf

    traced = tf.function(function, jit_compile=jit_compile, autograph=False)
    concrete = {}

    def call(*arguments):
        arguments = tf.nest.map_structure(tf.convert_to_tensor, arguments)
        shapes = tuple((tensor.shape, tensor.dtype) for tensor in tf.nest.flatten(arguments))
        # Looked up here, as `tf.function` takes new shapes, which are meant, for a mistake and warns.
        if shapes not in concrete:
            concrete[shapes] = traced.get_concrete_function(*arguments)
        return concrete[shapes](*arguments)

    return call


def _compiled_by_jax(function, variables):
    import jax

    def stateless(values, *arguments):
        with keras.StatelessScope(state_mapping=list(zip(variables, values, strict=True))):
            return function(*arguments)

    traced = jax.jit(stateless)
    return lambda *arguments: traced([variable.value for variable in variables], *arguments)
