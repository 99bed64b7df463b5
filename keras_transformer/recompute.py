"""Activations that are not kept for the backward pass, but computed again in it."""

import keras
from keras.src.backend import AutocastScope  # Keras has no public name for it.


def recomputed(layer, function, *tensors):
    """`function(*tensors)`, of which only the inputs are kept for the gradient: all between is computed once more.

    The second time is the first over again: generators draw the same numbers, and statistics and losses that the layer and
    its parts add count once. On TensorFlow memory is saved where the step is traced, as `fit` does.

    Args:
        layer: `keras.layers.Layer`: it and its parts have all variables that `function` reads or changes.
        function: maps float tensors to one float tensor. What else it needs it brings along; no gradient goes there.
        *tensors: float tensors.

    Returns:
        The tensor.

    Example:

    >>> from keras import ops
    >>> layer = keras.layers.Dense(1, kernel_initializer="ones")
    >>> layer.build((None, 2))
    >>> ops.convert_to_numpy(recomputed(layer, lambda x: layer(x) ** 2, ops.array([[1.0, 2.0]]))).tolist()
    [[9.0]]

    Reference: Chen et al., Training Deep Nets with Sublinear Memory Cost, arXiv 1604.06174.
    """
    variables, changed = _Variables(layer), []

    def pure(*arguments):
        inputs, weights = arguments[: len(tensors)], arguments[len(tensors) :]
        with variables.scope(weights) as scope, AutocastScope(layer.compute_dtype):
            before = [scope.get_current_value(variable) for variable in variables.others]
            output = function(*inputs)
            after = [scope.get_current_value(variable) for variable in variables.others]
        pairs = zip(variables.others, before, after, strict=True)
        changed[:] = [(variable, new) for variable, old, new in pairs if new is not old]
        return (output, *scope.losses), [new for _, new in changed]

    run = _on_tensorflow(pure) if keras.backend.backend() == "tensorflow" else keras.remat(pure)
    (output, *losses), states = run(*tensors, *variables.weights)
    for loss in losses:
        layer.add_loss(loss)
    for (variable, _), state in zip(changed, states, strict=True):
        variable.assign(state)
    return output


class _Variables:
    """What the variables of a layer hold now: its weights, which get gradients, and the others, which get none."""

    def __init__(self, layer):
        self.trainable = layer.trainable_variables
        chosen = {id(variable) for variable in self.trainable}
        self.others = [variable for variable in layer.variables if id(variable) not in chosen]
        with AutocastScope(None):  # As they are stored: each part of the layer casts them for itself.
            self.weights = [_read(variable) for variable in self.trainable]
            self._states = [_read(variable) for variable in self.others]

    def scope(self, weights):
        """A `keras.StatelessScope` in which the trainable ones have the values `weights`, and nothing is written back."""
        with AutocastScope(None):
            mapping = zip([*self.trainable, *self.others], [*weights, *self._states], strict=True)
            return keras.StatelessScope(list(mapping), collect_losses=True)


def _read(variable):
    """The value of a variable now; on TensorFlow `value` is the variable itself, whose value changes."""
    if keras.backend.backend() != "tensorflow":
        return variable.value
    import tensorflow as tf

    return tf.convert_to_tensor(variable.value)


def _on_tensorflow(function):
    """What `keras.remat` is on TensorFlow, for weights too: that one copies all it is given, and has no room for states.

    Args:
        function: maps float tensors to a tuple of float tensors, and a list of any.
    """
    import tensorflow as tf

    states = []

    @tf.custom_gradient
    def run(*arguments):
        results, states[:] = function(*arguments)

        def gradient(*upstream):
            again = (_after(upstream, arguments[0]), *arguments[1:])
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(again)
                results, _ = function(*again)
            gradients = tape.gradient(results, again, upstream, unconnected_gradients="zero")
            return [tf.convert_to_tensor(each) for each in gradients]  # A gather's names rows alone.

        return results, gradient

    return lambda *arguments: (run(*arguments), states)


def _after(upstream, x):
    """`x`, but not before `upstream` is there: a graph would compute at once what it can, or take it from the first time."""
    import tensorflow as tf

    first = tf.cast(tf.reduce_max(tf.reshape(upstream[0], (-1,))[:1]), "bool")
    # 0, whatever the value; the optimisers of graphs do not see that.
    return x + tf.cast(tf.where(first == first, 0.0, float("nan")), x.dtype)
