"""The limits of a process that runs an untrusted bundle."""

import dataclasses
import math

from keras_transformer.export.errors import ExportError


@dataclasses.dataclass(frozen=True)
class Isolation:
    """Limits of the process in which `load(..., isolated=...)` runs a bundle.

    Args:
        seconds: float > 0: the longest time of one call. Default 60.
        memory_bytes: int > 0: the most memory of the process, of its weights and all else. Default 8 GB. Linux keeps it.
        loading_seconds: float > 0: the longest time until the bundle is loaded. Default 180.

    Raises:
        ExportError: a limit is not a positive number.

    Example:

    >>> Isolation(seconds=2.0, memory_bytes=2**31).seconds
    2.0
    """

    seconds: float = 60.0
    memory_bytes: int = 2**33
    loading_seconds: float = 180.0

    def __post_init__(self) -> None:
        for name, value in dataclasses.asdict(self).items():
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not is_number or not 0 < value < math.inf:
                raise ExportError(f"{name} must be a positive number. Received: {value!r}")
