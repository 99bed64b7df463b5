"""Scans: running combinations of the elements of a sequence, in logarithmically many steps.

Distances double from step to step: a graph has one step for each doubling or, if the length is dynamic, one loop over them.
Only operations that every export format supports are used. Mixers scan over chunks, not tokens.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from keras import ops

from keras_transformer.utils.types import Tensor

_Tensors = tuple[Tensor, ...]


def associative_scan(
    combine: Callable[[_Tensors, _Tensors], _Tensors], elements: _Tensors, fills: tuple[float, ...]
) -> _Tensors:
    """Returns the prefixes `y_i = x_0 ∘ x_1 ∘ ... ∘ x_i` along axis 1, for an associative `∘`.

    Time and memory are `O(n log n)` for n elements.

    Args:
        combine: function of two tuples of tensors, the earlier elements and the later, to their combination.
        elements: tuple of tensors `(B | 1, n, ...)`.
        fills: tuple of floats, one for each tensor: the identity of `combine`, which precedes the first element.

    Returns:
        Tuple of tensors of the shapes of the elements.

    Example:

    >>> import numpy as np
    >>> x = np.arange(1.0, 6.0).reshape(1, 5)
    >>> np.array(associative_scan(lambda a, b: (a[0] * b[0],), (x,), fills=(1.0,))[0]).tolist()
    [[1.0, 2.0, 6.0, 24.0, 120.0]]

    Reference: Hillis and Steele, Data Parallel Algorithms, 1986.
    """

    def step(distance: int | Tensor, *elements: Tensor) -> _Tensors:
        earlier = tuple(delayed(x, distance, fill) for x, fill in zip(elements, fills, strict=True))
        return combine(earlier, elements)

    elements = tuple(ops.convert_to_tensor(x) for x in elements)
    return doubling(step, elements, ops.shape(elements[0])[1])


def linear_scan(
    apply: Callable[[_Tensors, _Tensors], _Tensors],
    square: Callable[[_Tensors], _Tensors],
    transition: _Tensors,
    x: _Tensors,
) -> _Tensors:
    """Returns `h_i = A h_{i - 1} + x_i` along axis 1, with `h_{-1} = 0` and the same A for every step.

    Args:
        apply: function of the transition and x that returns `A x` at every position.
        square: function of the transition that returns `A²`.
        transition: tuple of tensors, A.
        x: tuple of tensors `(B, n, ...)`.

    Returns:
        h, of the shapes of x.

    Example:

    >>> import numpy as np
    >>> halve = (np.array(0.5),)
    >>> apply, square = (lambda a, x: (a[0] * x[0],)), (lambda a: (a[0] * a[0],))
    >>> np.array(linear_scan(apply, square, halve, (np.ones((1, 4)),))[0]).tolist()
    [[1.0, 1.5, 1.75, 1.875]]
    """
    size = len(transition)

    def step(distance: int | Tensor, *carry: Tensor) -> _Tensors:
        transition, x = carry[:size], carry[size:]
        added = apply(transition, tuple(delayed(part, distance, 0.0) for part in x))
        return *square(transition), *(part + more for part, more in zip(x, added, strict=True))

    carry = tuple(ops.convert_to_tensor(part) for part in (*transition, *x))
    return doubling(step, carry, ops.shape(x[0])[1])[size:]


def doubling(step: Callable[..., _Tensors], carry: _Tensors, count: int | Tensor) -> _Tensors:
    """Returns the carry after `carry = step(distance, *carry)` for the distances 1, 2, 4, ... below `count`.

    Args:
        step: function of a distance, int or int32 `()`, and the parts of the carry, to the next carry.
        carry: tuple of tensors, whose shapes do not change.
        count: int or int32 `()`.
    """
    if isinstance(count, int):  # Always on JAX, which cannot differentiate such a loop.
        distance = 1
        while distance < count:
            carry = step(distance, *carry)
            distance *= 2
        return tuple(carry)
    # With a static bound, a compiler can allocate the memory for the gradient.
    powers = ops.convert_to_tensor(2 ** np.arange(31), "int32")
    loop = ops.while_loop(
        lambda distance, *_: ops.less(distance, count),
        lambda distance, *carry: (distance * 2, *step(distance, *carry)),
        (ops.convert_to_tensor(1, "int32"), *carry),
        maximum_iterations=ops.sum(ops.cast(ops.less(powers, count), "int32")),
    )
    return tuple(loop[1:])


def chunk_size_for(x: Tensor, chunk_size: int) -> int:
    """Returns the size of the chunks of `(B, T, ...)`: at most T, if that is known."""
    return chunk_size if x.shape[1] is None else min(chunk_size, x.shape[1])


def delayed(x: Tensor, distance: int | Tensor, fill: float = 0.0) -> Tensor:
    """Returns `(B, n, ...)` shifted right by `distance` positions, with `fill` in the first ones."""
    batch_size, count, *rest = ops.shape(x)
    before = ops.broadcast_to(ops.convert_to_tensor(fill, x.dtype), (batch_size, distance, *rest))
    return ops.concatenate([before, x[:, : count - distance]], axis=1)
