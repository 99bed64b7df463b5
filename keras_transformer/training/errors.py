"""Errors of training."""

from typing import Any


class TrainingCheckpointError(ValueError):
    """The training checkpoint is corrupt, belongs to another training, or is in use by one that runs."""


class CorruptCheckpointError(TrainingCheckpointError):
    """The training checkpoint is incomplete or damaged, and so is the one before it, if there is one."""


class AdapterError(ValueError):
    """The low-rank adapters are missing, not supported by the model, or those of another model."""


class DistributionError(ValueError):
    """The devices or workers cannot train the model as requested."""


class PruningError(ValueError):
    """The model, the data or the shares do not allow the pruning."""


class DataError(ValueError):
    """A batch has values with which a model cannot be trained; the message names input, row, value and valid range."""


class NonFiniteError(ArithmeticError):
    """A training step had a loss, a gradient or a weight that is NaN or infinite.

    Args:
        message: str.

    Attributes:
        step: int. Index of the step since the start of `fit`, from 0.
        origin: `training.NaNOrigin`, or None if the step did not repeat it.
        path: `pathlib.Path` of the file for `training.replay`, or None.
    """

    def __init__(self, message: str, step: int = 0, origin: Any = None, path: Any = None) -> None:
        super().__init__(message)
        self.step = step
        self.origin = origin
        self.path = path
