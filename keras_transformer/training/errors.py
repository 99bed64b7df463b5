"""Errors of training."""


class TrainingCheckpointError(ValueError):
    """The training checkpoint is corrupt, or belongs to another training."""


class AdapterError(ValueError):
    """The low-rank adapters are missing, not supported by the model, or those of another model."""


class DistributionError(ValueError):
    """The devices or workers cannot train the model as requested."""


class PruningError(ValueError):
    """The model, the data or the shares do not allow the pruning."""
