from typing import Any

class TopKV2:
    @classmethod
    def version_13(cls, ctx: Any, node: Any, **kwargs: Any) -> None: ...

def __getattr__(name: str) -> Any: ...
