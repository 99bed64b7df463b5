# Keras declares no types, and what pyright infers from its code is wrong: every operation could return None. To mypy, too,
# all of Keras is Any.
from typing import Any

def __getattr__(name: str) -> Any: ...
