"""Errors of checkpoints; every message is one line that names the file, setting or tensor."""


class CheckpointError(Exception):
    """A checkpoint cannot be read or written: the base class of the errors below."""


class MissingFileError(CheckpointError, FileNotFoundError):
    """A folder, or a file in it, does not exist."""


class CorruptFileError(CheckpointError):
    """A file is truncated or is not in the format of its extension."""


class UnsafePathError(CheckpointError):
    """A file of the folder refers to a path outside of the folder."""


class ConfigError(CheckpointError, ValueError):
    """A setting is missing, has the wrong type, is out of range, or selects a variant that is not supported."""


class UnknownArchitectureError(CheckpointError, ValueError):
    """A `model_type` or a head is not in `ARCHITECTURES`."""


class MissingTensorError(CheckpointError):
    """The checkpoint has no tensor for some weights of the model."""


class UnexpectedTensorError(CheckpointError):
    """The model has no weight for some tensors of the checkpoint."""


class TensorShapeError(CheckpointError, ValueError):
    """The shape of a tensor does not match the config."""


class TensorTypeError(CheckpointError, ValueError):
    """A tensor has another kind of dtype than its weight, or a value that the dtype of the weight cannot represent."""
