"""Functions that a format has as one operator: they are traced as calls, which its writer finds again by their names.

Whoever knows no such operator inlines them, and has what they compute.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from keras_transformer.utils.types import Tensor

if TYPE_CHECKING:
    from tensorflow.core.framework.function_pb2 import FunctionDef

# In the name of every function that is made here.
MARK = "native_operator"
# The attribute of a function in which TensorFlow keeps what it implements.
_IMPLEMENTS = "_implements"


def call(
    operator: dict[str, Any], function: Callable[..., Sequence[Tensor]], arguments: dict[str, Tensor]
) -> list[Tensor]:
    """The results of a function, which is traced by itself.

    Args:
        operator: dict of what is known of the operator that computes the same, in terms of JSON.
        function: takes the arguments in their order, and reads nothing else; returns a list of tensors.
        arguments: dict of the name of each argument to a tensor.
    """

    def traced(*tensors: Tensor) -> list[Tensor]:
        return list(function(*tensors))

    traced.__name__ = MARK
    specs = [tf.TensorSpec(each.shape, each.dtype, name) for name, each in arguments.items()]
    attributes = {_IMPLEMENTS: json.dumps(operator, sort_keys=True)}
    made = tf.function(traced, autograph=False, experimental_attributes=attributes).get_concrete_function(*specs)
    return list(made(*arguments.values()))


def operator_of(function: FunctionDef) -> dict[str, Any]:
    """What is known of the operator that computes what the `FunctionDef` of a call computes."""
    found: dict[str, Any] = json.loads(function.attr[_IMPLEMENTS].s)
    return found
