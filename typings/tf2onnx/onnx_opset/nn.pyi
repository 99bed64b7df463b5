from typing import Any

class Resize:
    @classmethod
    def version_11(cls, ctx: Any, node: Any, **kwargs: Any) -> None: ...

def __getattr__(name: str) -> Any: ...
