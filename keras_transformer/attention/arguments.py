"""Checks of the arguments of attention."""

from __future__ import annotations

from collections.abc import Sequence

from keras_transformer.utils.types import Shape


def positive(name: str, value: int) -> int:
    """Returns `value`; raises `ValueError` unless it is a positive integer."""
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise ValueError(
            f"Received an invalid value for argument `{name}`, expected a positive integer. Received: {name}={value}"
        )
    return value


def key_value_heads(num_key_value_heads: int | None, num_heads: int) -> int:
    """Returns the number of key/value heads, by default `num_heads`; raises `ValueError` unless it divides `num_heads`."""
    if num_key_value_heads is None:
        return num_heads
    if num_heads % positive("num_key_value_heads", num_key_value_heads):
        raise ValueError(
            f"num_key_value_heads must divide num_heads={num_heads}. Received: num_key_value_heads={num_key_value_heads}"
        )
    return num_key_value_heads


def output_shape_tuple(output_shape: int | Sequence[int] | None) -> tuple[int, ...] | None:
    """Returns the shape of an output vector as a tuple; None stays None."""
    if output_shape is None:
        return None
    shape = (output_shape,) if isinstance(output_shape, int) else output_shape
    if not isinstance(shape, (tuple, list)) or not all(isinstance(size, int) for size in shape):
        raise ValueError(f"Invalid `output_shape`: expected an int or a tuple of ints. Received: {output_shape}")
    return tuple(shape)


def check_key_shape(value_shape: Shape, key_shape: Shape) -> None:
    """Raises `ValueError` for keys and values of unequal length."""
    if tuple(value_shape[1:-1]) != tuple(key_shape[1:-1]):
        raise ValueError(
            "All dimensions of `value` and `key`, except the last one, must be equal. "
            f"Received: value_shape={value_shape} and key_shape={key_shape}"
        )


def check_shapes(query_shape: Shape, value_shape: Shape, key_shape: Shape) -> None:
    """Raises `ValueError` for keys and values of unequal length, and for inputs that are not of rank 3."""
    check_key_shape(value_shape, key_shape)
    if len(query_shape) != 3 or len(value_shape) != 3:
        raise ValueError(
            f"Inputs must be of rank 3, (batch, length, features). Received: query {query_shape}, value {value_shape}"
        )
