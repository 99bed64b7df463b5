"""Float32 products in full precision while a model is compared with its files."""

import contextlib
import sys
import threading
from collections.abc import Iterator

_lock = threading.Lock()
# How many threads are inside, and TensorFlow's setting from before the first of them.
_state = {"depth": 0, "before": True}


@contextlib.contextmanager
def full_precision() -> Iterator[None]:
    """A context in which TensorFlow, if it is loaded, does not round float32 products to TF32 on a GPU.

    The setting belongs to the process: the last thread that leaves restores it.
    """
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is None:
        yield
        return
    settings = tensorflow.config.experimental
    with _lock:
        if _state["depth"] == 0:
            _state["before"] = settings.tensor_float_32_execution_enabled()
            settings.enable_tensor_float_32_execution(False)
        _state["depth"] += 1
    try:
        yield
    finally:
        with _lock:
            _state["depth"] -= 1
            if _state["depth"] == 0:
                settings.enable_tensor_float_32_execution(bool(_state["before"]))
