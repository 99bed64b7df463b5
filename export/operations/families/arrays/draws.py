"""Random numbers whose seed and shape are constants: they are constants themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

from keras_transformer.export.graph.part import Node
from keras_transformer.export.operations.operation import TFLITE, Decomposed, Operation
from keras_transformer.utils.types import Tensor

_SEED = "StatelessRandomGetKeyCounter"


def normal_numbers(shape: Tensor, seed: Tensor, algorithm: Tensor, *, dtype: tf.DType) -> Tensor:
    return _drawn(tf.raw_ops.StatelessRandomNormalV2, shape, seed, algorithm, dtype)


def uniform_numbers(shape: Tensor, seed: Tensor, algorithm: Tensor, *, dtype: tf.DType) -> Tensor:
    return _drawn(tf.raw_ops.StatelessRandomUniformV2, shape, seed, algorithm, dtype)


def truncated_normal_numbers(shape: Tensor, seed: Tensor, algorithm: Tensor, *, dtype: tf.DType) -> Tensor:
    return _drawn(tf.raw_ops.StatelessTruncatedNormalV2, shape, seed, algorithm, dtype)


def _drawn(draw: Callable[..., tf.Tensor], shape: Tensor, seed: Tensor, algorithm: Tensor, dtype: tf.DType) -> Tensor:
    """What an operation draws, in the file."""
    shape, seed, algorithm = (tf.get_static_value(each) for each in (shape, seed, algorithm))
    with tf.init_scope():
        key, counter = tf.raw_ops.StatelessRandomGetKeyCounter(seed=tf.constant(seed, tf.int64))
        value = draw(shape=shape, key=key, counter=counter, alg=algorithm, dtype=dtype).numpy()
    return tf.constant(value)


def _constants(node: Node) -> Sequence[str]:
    """The shape, the seed and the number of the algorithm; nothing where the seed does not come from a cast at most."""
    shape, key, _, algorithm = node.inputs
    source = node.part.node(key)
    if source is None or source.op != _SEED:
        return []
    cast = source.producer(0)
    seed = cast.inputs[0] if cast is not None and cast.op == "Cast" else source.inputs[0]
    return [shape, seed, algorithm]


def _is_constant(node: Node) -> bool:
    sources = [node.part.node(each) for each in _constants(node)]
    return bool(sources) and all(each is not None and each.op == "Const" for each in sources)


def _constant(function: Callable[..., Tensor]) -> dict[str, Decomposed]:
    return {TFLITE: Decomposed(function, ("dtype",), _is_constant, _constants)}


OPERATIONS = (
    Operation("StatelessRandomNormalV2", _constant(normal_numbers)),
    Operation("StatelessRandomUniformV2", _constant(uniform_numbers)),
    Operation("StatelessTruncatedNormalV2", _constant(truncated_normal_numbers)),
)
