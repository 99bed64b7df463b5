"""What can be wrong with a checkpoint; every message is one line that names the culprit."""


class CheckpointError(Exception):
    """A checkpoint that cannot be read or written as asked; the base of the errors below."""


class MissingFileError(CheckpointError, FileNotFoundError):
    """A folder, or a file that it should hold, is not there."""


class CorruptFileError(CheckpointError):
    """A file that is truncated, or not what its name says."""


class UnsafePathError(CheckpointError):
    """The folder names a file outside of itself."""


class ConfigError(CheckpointError, ValueError):
    """A setting that is missing, of the wrong kind, absurd, or of a variant that is not built here."""


class UnknownArchitectureError(CheckpointError, ValueError):
    """A `model_type`, or a head, that is not in `ARCHITECTURES`."""


class MissingTensorError(CheckpointError):
    """The model has weights for which the checkpoint has no tensor."""


class UnexpectedTensorError(CheckpointError):
    """The checkpoint has tensors for which the model has no weights."""


class TensorShapeError(CheckpointError, ValueError):
    """A tensor has not the shape that its config asks for."""
