"""The conditioning of a model: how far its outputs move when its weights are rounded differently.

No file can be expected to be closer to the model than that.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence

import keras
import numpy as np

from keras_transformer.export.errors import ParityError
from keras_transformer.export.runtime.precision import full_precision
from keras_transformer.export.spec.export_spec import Signature
from keras_transformer.utils.types import Tensor

# Random roundings of the weights that are tried; the largest movement counts.
DRAWS = 3


def movement(
    function: Callable[[dict[str, Tensor]], Mapping[str, Tensor]],
    variables: Sequence[keras.Variable],
    inputs: Mapping[str, np.ndarray],
    outputs: Mapping[str, np.ndarray],
    seed: int = 0,
) -> dict[str, float]:
    """How far outputs move when each weight becomes the next float above or below it, or stays, at random.

    The variables keep their values: the function reads others in a `keras.StatelessScope`.

    Args:
        function: maps a dict of named tensors to a dict of named tensors, and reads the variables.
        variables: Keras variables.
        inputs: dict of arrays.
        outputs: dict of arrays: the function's results on `inputs`.
        seed: int.

    Returns:
        dict of output name to the largest absolute difference in `DRAWS` draws.
    """
    tensors = {name: keras.ops.convert_to_tensor(array) for name, array in inputs.items()}
    moved, random = dict.fromkeys(outputs, 0.0), np.random.default_rng(seed)
    for _ in range(DRAWS):
        with keras.StatelessScope(state_mapping=_rounded_differently(variables, random)), full_precision():
            results = function(tensors)
        for name, expected in outputs.items():
            difference = np.abs(np.asarray(results[name], "float64") - expected).max(initial=0.0)
            moved[name] = max(moved[name], float(difference))
    return moved


def _rounded_differently(
    variables: Sequence[keras.Variable], random: np.random.Generator
) -> list[tuple[keras.Variable, np.ndarray]]:
    """Each float variable with its values moved by a step up, a step down, or not at all."""
    pairs = []
    for variable in variables:
        if "float" not in str(variable.dtype):
            continue
        value = keras.ops.convert_to_numpy(variable)
        direction = random.choice([-1, 0, 1], value.shape)
        target = np.select([direction < 0, direction > 0], [-np.inf, np.inf], value).astype(value.dtype)
        pairs.append((variable, np.nextafter(value, target)))
    return pairs


@contextlib.contextmanager
def explaining(signatures: Mapping[str, Signature], variables: Sequence[keras.Variable]) -> Iterator[None]:
    """Context that adds a note to a `ParityError` if rounding alone changes the outputs of the model as much.

    Args:
        signatures: dict of name to `Signature`, whose probes have outputs.
        variables: Keras variables that the signatures read.
    """
    try:
        yield
    except ParityError as error:
        moved = _moved(error, signatures, variables)
        if not moved >= error.difference / 2:
            raise
        hint = f"; rounding the weights differently moves the model itself by {moved:.3g}: it needs a larger tolerance"
        figures = (error.difference, error.scale, error.tolerance)
        raise ParityError(error.format, error.output, error.probe, *figures, hint=hint) from error


def _moved(error: ParityError, signatures: Mapping[str, Signature], variables: Sequence[keras.Variable]) -> float:
    """How far rounding moves the output that an error names, on its probe; NaN where it names no difference."""
    pairs = [(each.function, probe) for each in signatures.values() for probe in each.probes]
    for function, probe in pairs:
        if probe.label == error.probe and error.output in probe.outputs and not np.isnan(error.difference):
            return movement(function, variables, probe.inputs, probe.outputs)[error.output]
    return np.nan
