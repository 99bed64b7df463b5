"""How exactly a model is determined by weights that are rounded: what no file can be expected to be closer than."""

import contextlib

import numpy as np

from keras_transformer.export.errors import ParityError
from keras_transformer.export.runtime.loading import full_precision

# Draws of which weights are rounded up and which down; the largest movement counts.
DRAWS = 3


def movement(function, variables, inputs, outputs, seed=0):
    """How far outputs move when every weight is rounded to a neighbor of what it is.

    Args:
        function: maps a dict of named tensors to a dict of named tensors, and reads the variables.
        variables: `tf.Variable`s. They are changed for the time of the call.
        inputs: dict of arrays.
        outputs: dict of arrays: what the function gives for them.
        seed: int.

    Returns:
        dict of output name to the largest absolute difference in `DRAWS` draws.
    """
    import tensorflow as tf

    tensors = {name: tf.convert_to_tensor(array) for name, array in inputs.items()}
    moved, random = dict.fromkeys(outputs, 0.0), np.random.default_rng(seed)
    for _ in range(DRAWS):
        with _rounded_elsewhere(variables, random), full_precision():
            found = function(tensors)
        for name, expected in outputs.items():
            difference = np.abs(np.asarray(found[name], "float64") - expected).max(initial=0.0)
            moved[name] = max(moved[name], float(difference))
    return moved


@contextlib.contextmanager
def _rounded_elsewhere(variables, random):
    """Sets every float weight to the next float below or above, or leaves it, as is drawn; then as it was."""
    floats = [variable for variable in variables if variable.dtype.is_floating]
    kept = [variable.numpy() for variable in floats]
    try:
        for variable, value in zip(floats, kept, strict=True):
            drawn = random.choice([-1, 0, 1], value.shape)
            variable.assign(np.nextafter(value, np.select([drawn < 0, drawn > 0], [-np.inf, np.inf], value)))
        yield
    finally:
        for variable, value in zip(floats, kept, strict=True):
            variable.assign(value)


@contextlib.contextmanager
def explaining(signatures, variables):
    """A context in which a `ParityError` says so where rounding alone moves the model as much as the file differs.

    Args:
        signatures: dict of name to `Signature`, whose probes hold outputs.
        variables: `tf.Variable`s that the signatures read.
    """
    try:
        yield
    except ParityError as error:
        moved = _moved(error, signatures, variables)
        if not moved >= error.difference / 2:
            raise
        hint = f"; rounding the weights otherwise moves the model itself by {moved:.3g}: it needs a larger tolerance"
        figures = (error.difference, error.scale, error.tolerance)
        raise ParityError(error.format, error.output, error.probe, *figures, hint=hint) from error


def _moved(error, signatures, variables):
    """How far rounding moves the output that an error names, on its probe; NaN where it names no difference."""
    pairs = [(each.function, probe) for each in signatures.values() for probe in each.probes]
    for function, probe in pairs:
        if probe.label == error.probe and error.output in probe.outputs and not np.isnan(error.difference):
            return movement(function, variables, probe.inputs, probe.outputs)[error.output]
    return np.nan
