# Keras has no type hints, and pyright infers wrong ones: the result of `keras.ops.shape` may be None there.
# As for mypy, which does not look into packages without hints, all of it is Any.
from typing import Any

from . import ops as ops

def __getattr__(name: str) -> Any: ...
