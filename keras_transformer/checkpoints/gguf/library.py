"""The `gguf` package."""

from __future__ import annotations

import functools
from types import ModuleType

from keras_transformer.version import install_command


@functools.cache
def library() -> ModuleType:
    """Returns the `gguf` package.

    Raises:
        ImportError: it is not installed.
    """
    try:
        import gguf
        import gguf.quants
    except ImportError as error:
        raise ImportError(f"GGUF files need the gguf package: {install_command('gguf')}") from error
    return gguf
