from typing import Any

class FloorMod:
    @classmethod
    def version_7(cls, ctx: Any, node: Any, **kwargs: Any) -> None: ...

def __getattr__(name: str) -> Any: ...
