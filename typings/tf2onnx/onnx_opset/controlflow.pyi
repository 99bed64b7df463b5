from typing import Any

class Select:
    @classmethod
    def version_9(cls, ctx: Any, node: Any, **kwargs: Any) -> None: ...

def __getattr__(name: str) -> Any: ...
