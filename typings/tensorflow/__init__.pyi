# What the stubs of TensorFlow declare is incomplete; to mypy, too, all of TensorFlow is Any.
from typing import Any

def __getattr__(name: str) -> Any: ...
