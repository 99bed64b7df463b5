"""Functions of functions: conditions, loops, maps and scans."""

import numpy as np
from keras import ops

from .case import OTHERS, case, normal

SEQUENCE, STATE = normal(6, 3), normal(3)


def _step(carry, x):
    carry = 0.5 * carry + x
    return carry, ops.tanh(carry)


case("cond", lambda x: ops.cond(ops.sum(x) > 0, lambda: 2 * x, lambda: x - 1), OTHERS)


def _inner(x):
    twice = 2 * x
    return ops.cond(ops.max(x) > 1, lambda: twice, lambda: twice + 1)


case("cond", lambda x: ops.cond(ops.sum(x) > -99, lambda: _inner(x), lambda: -x), OTHERS, label="nested")
case(
    "switch",
    lambda x, i: ops.switch(i, [lambda y: y, lambda y: 2 * y, lambda y: ops.sin(y), ops.abs], x),
    OTHERS,
    np.array(2, "int32"),
    label="of four",
    shapes=((None, 5), ()),
)
case(
    "switch",
    lambda x, i: ops.switch(i, [lambda y: y, lambda y: 2 * y], x),
    OTHERS,
    np.array(1, "int32"),
    shapes=((None, 5), ()),
)
case("fori_loop", lambda x: ops.fori_loop(0, 4, lambda i, y: ops.tanh(y) + ops.cast(i, "float32"), x), OTHERS)
case("while_loop", lambda x: ops.while_loop(lambda y: ops.sum(y) < 99.0, lambda y: (1.5 * y + 1,), (x,))[0], OTHERS)
case("map", lambda x: ops.map(lambda row: ops.cumsum(row) * 2, x), OTHERS)
case("vectorized_map", lambda x: ops.vectorized_map(lambda row: row * ops.sum(row), x), OTHERS)
case("vectorize", lambda x: ops.vectorize(lambda value: ops.sin(value) * 2)(x), OTHERS)
case("scan", lambda s, x: ops.scan(_step, s, x), STATE, SEQUENCE, shapes=((3,), (None, 3)))
case("associative_scan", lambda x: ops.associative_scan(lambda a, b: a * b, x), SEQUENCE, label="fixed", shapes=())
case("associative_scan", lambda x: ops.associative_scan(lambda a, b: a + b, x, axis=1), OTHERS, label="inner")
case("stop_gradient", ops.stop_gradient, OTHERS)


@ops.custom_gradient
def _clipped(x):
    return ops.clip(x, -1.0, 1.0), lambda *_, upstream: upstream


case("custom_gradient", lambda x: _clipped(x), OTHERS)
