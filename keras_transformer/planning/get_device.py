"""Devices by name."""

from __future__ import annotations

from keras_transformer.planning.devices import DEVICES, Device
from keras_transformer.planning.errors import PlanningError
from keras_transformer.utils.choice import choice


def get_device(name: str) -> Device:
    """Returns a device by its name.

    Args:
        name: str, in upper or lower case: a key of `DEVICES`, or "here" for this processor, measured.

    Raises:
        PlanningError: an unknown name; the message suggests the nearest and lists the known ones.

    Example:

    >>> get_device("H100").memory
    80
    """
    if name == "here":
        from keras_transformer.planning.this_processor import this_processor  # Imports TensorFlow.

        return this_processor()
    try:
        return choice(name.lower(), DEVICES, argument="device")
    except ValueError as error:
        raise PlanningError(str(error)) from None
