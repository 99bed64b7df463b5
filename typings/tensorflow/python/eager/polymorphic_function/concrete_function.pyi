from typing import Any

class ConcreteFunction:
    graph: Any
    inputs: list[Any]
    outputs: list[Any]
    captured_inputs: list[Any]
    structured_outputs: Any
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
