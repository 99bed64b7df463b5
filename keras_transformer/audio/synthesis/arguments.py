"""Checks of arguments that the layers of speech synthesis share."""

from __future__ import annotations

from keras_transformer.utils.processor_config import is_count


def check_counts(**values: object) -> None:
    """Raises `ValueError` for a value that is not an int of at least 1."""
    for name, value in values.items():
        if not is_count(value):
            raise ValueError(f"{name} must be an int of at least 1. Received: {value!r}")


def check_odd(**values: int) -> None:
    """Raises `ValueError` for a value that is not an odd int of at least 1."""
    check_counts(**values)
    for name, value in values.items():
        if value % 2 == 0:
            raise ValueError(f"{name} must be odd. Received: {value}")
