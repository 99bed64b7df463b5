"""Memory that was freed, and that the C library keeps for itself."""

import ctypes
import sys


def give_back() -> None:
    """Gives freed memory back to the system, on Linux with glibc; elsewhere the system's library decides.

    Weights that a runtime packed are freed in pieces of many sizes, of which glibc keeps several hundred megabytes.

    Example:

    >>> give_back()
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)
