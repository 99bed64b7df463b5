"""Objects that Keras saves inside a layer."""

from __future__ import annotations

from typing import Any


class Configured:
    """Base of processes and samplers: an object that its config, the arguments of its constructor, makes again.

    Example:

    >>> from keras_transformer.diffusion import RectifiedFlow
    >>> RectifiedFlow.from_config(RectifiedFlow(shift=3.0).get_config()).shift
    3.0
    """

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """Returns the object of a config."""
        make: Any = cls
        return make(**config)
