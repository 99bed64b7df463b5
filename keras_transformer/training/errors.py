"""Errors of training: checkpoints, adapters and distribution."""


class TrainingCheckpointError(ValueError):
    """A checkpoint is broken, or belongs to another training."""


class AdapterError(ValueError):
    """Low-rank adapters that a model cannot have, has not, or that are of another model."""


class DistributionError(ValueError):
    """Devices or workers that cannot train a model as asked."""
