"""Errors of training."""


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
