"""Copies of variables in the memory of the host."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import keras
import numpy as np

from keras_transformer.training.checkpointing.snapshot import training_variables
from keras_transformer.utils.types import Tensor


class VariableCopies:
    """Values of variables at one time, which can be restored exactly.

    Args:
        variables: the variables to copy.
        value: function from a variable to its value, or None for the variable's own.

    Example:

    >>> variable = keras.Variable([1.0, 2.0])
    >>> copies = VariableCopies([variable])
    >>> _ = variable.assign([3.0, 4.0])
    >>> copies.restore()
    >>> np.array(variable).tolist()
    [1.0, 2.0]
    """

    def __init__(
        self, variables: Iterable[keras.Variable], value: Callable[[keras.Variable], Tensor] | None = None
    ) -> None:
        self.variables = list(variables)
        self.values = [keras.ops.convert_to_numpy(value(each) if value else each) for each in self.variables]

    def restore(self) -> None:
        """Assigns the values to the variables."""
        for variable, value in zip(self.variables, self.values, strict=True):
            variable.assign(value)

    def are_finite(self) -> bool:
        """Returns whether no float value is NaN or infinite."""
        return all(
            bool(np.isfinite(value).all())
            for variable, value in zip(self.variables, self.values, strict=True)
            if keras.backend.is_float_dtype(keras.backend.standardize_dtype(variable.dtype))
        )


def state_variables(model: keras.Model) -> list[keras.Variable]:
    """Returns the variables of the model and of its optimizer, seeds included, but not those of metrics."""
    groups = training_variables(model)
    return [*groups["model"], *groups["optimizer"]]


def first_not_finite(variables: Iterable[keras.Variable]) -> keras.Variable | None:
    """Returns the first variable with a NaN or an infinite value, or None."""
    return next((variable for variable in variables if not is_finite(variable)), None)


def is_finite(x: Tensor) -> bool:
    """Returns whether a tensor or variable has finite values only; True for dtypes other than floats."""
    if not keras.backend.is_float_dtype(keras.backend.standardize_dtype(x.dtype)):
        return True
    return bool(keras.ops.all(keras.ops.isfinite(x)))
