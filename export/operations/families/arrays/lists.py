"""Lists that loops fill, such as the outputs of a recurrent layer."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from keras_transformer.export.graph.part import Node
from keras_transformer.export.operations.operation import TFLITE, Decomposed, Operation, in_both
from keras_transformer.utils.types import Tensor

_REMEDY = (
    "a list of a loop, as of keras.ops.map and keras.ops.scan, needs elements of a fixed shape: give the inputs fixed sizes,"
    " write the loop with keras.ops.while_loop, or leave this format out, with formats=['onnx']"
)


def stacked(*elements: Tensor) -> Tensor:
    """A list of elements that are all known, in one tensor: that of a `tf.TensorArray` in a loop of Python."""
    return tf.stack(elements)


def _elements(node: Node) -> Sequence[str]:
    """The elements of the list that an operation reads; none where some are written by a loop, or not at all."""
    found: dict[int, str] = {}
    writer = node.producer(0)
    while writer is not None and writer.op == "TensorListSetItem":
        index = writer.value(1)
        if index is None:
            return ()
        found.setdefault(int(index), writer.inputs[2])  # The last one counts.
        writer = writer.producer(0)
    size = writer.value(1) if writer is not None and writer.op == "TensorListReserve" else None
    return [found[index] for index in range(len(found))] if found.keys() == set(range(int(size or 0))) else ()


def _is_filled(node: Node) -> bool:
    return bool(_elements(node))


_STACK = in_both(Decomposed(stacked, when=_is_filled, operands=_elements))
_REMEDIES = {TFLITE: _REMEDY}

OPERATIONS = (
    Operation("TensorListStack", _STACK, _REMEDIES),
    *(Operation(f"TensorList{name}", remedies=_REMEDIES) for name in ("FromTensor", "GetItem", "Reserve", "SetItem")),
)
