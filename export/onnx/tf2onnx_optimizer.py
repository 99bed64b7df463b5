"""The graph optimizer of tf2onnx, with corrections of two of its passes.

This is the only file that touches private attributes of tf2onnx. `setup.py` pins the releases that it was tried with.
"""

import contextlib
import importlib
import threading
from collections.abc import Callable, Iterator
from importlib.metadata import version
from typing import Any

_LOCK = threading.Lock()
_RESHAPE = ("Reshape",)
_TRIED = "1.17"


def optimize_graph(graph: Any) -> Any:
    """Returns a `tf2onnx.graph.Graph` as simplified by tf2onnx.

    Two passes of tf2onnx are corrected:

    - It removes the first of two consecutive reshapes. A 0 in the target of the second one copies a size of its input,
      which is then another size. The single head of multi-query attention is moved by such a reshape.
    - When it moves a transpose behind the square of a tensor, it keeps the former shape of the square. A norm behind a
      convolution with one position was then computed over the positions.

    Raises:
        RuntimeError: this release of tf2onnx does not have the attributes that are corrected.
    """
    with _LOCK, _corrected_reshapes(), _corrected_squares():
        return importlib.import_module("tf2onnx.optimizer").optimize_graph(graph)


@contextlib.contextmanager
def _corrected_reshapes() -> Iterator[None]:
    handlers = _private("tf2onnx.optimizer.back_to_back_optimizer", "_func_map")
    merge = handlers.get(_RESHAPE)
    if merge is None:
        raise _changed("tf2onnx.optimizer.back_to_back_optimizer._func_map")
    handlers[_RESHAPE] = lambda graph, node, consumers: (
        [] if any(_copies_sizes(each) for each in consumers) else merge(graph, node, consumers)
    )
    try:
        yield
    finally:
        handlers[_RESHAPE] = merge


def _copies_sizes(reshape: Any) -> bool:
    target = reshape.inputs[1]
    return target.is_const() and 0 in target.get_tensor_value(as_list=False)


@contextlib.contextmanager
def _corrected_squares() -> Iterator[None]:
    optimizer = _private("tf2onnx.optimizer.transpose_optimizer", "TransposeOptimizer")
    invert_perm = _private("tf2onnx.optimizer.transpose_optimizer", "invert_perm")
    handle: Callable[..., bool] | None = getattr(optimizer, "_mul_handler", None)
    if handle is None:
        raise _changed("TransposeOptimizer._mul_handler")

    def corrected(self: Any, transpose: Any, product: Any) -> bool:
        shape, is_square = self._g.get_shape(product.output[0]), product.input[0] == product.input[1]
        is_moved = handle(self, transpose, product)
        if is_moved and is_square and shape:
            order = invert_perm(transpose.get_attr_value("perm"))
            self._g.set_shape(product.output[0], [shape[axis] for axis in order])
        return is_moved

    optimizer._mul_handler = corrected
    try:
        yield
    finally:
        optimizer._mul_handler = handle


def _private(module: str, name: str) -> Any:
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        raise _changed(f"{module}.{name}") from None


def _changed(name: str) -> RuntimeError:
    found = version("tf2onnx")
    return RuntimeError(f"tf2onnx {found} has no {name}: install tf2onnx {_TRIED}, which this package was tried with")
