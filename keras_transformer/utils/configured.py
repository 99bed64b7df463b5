"""Objects beside layers that Keras saves."""

from __future__ import annotations

from typing import Any

from keras_transformer.utils.types import Config


class Configured:
    """Base of an object, such as a process or a scaling, that its config, the arguments of its constructor, makes again.

    Example:

    >>> from keras_transformer.diffusion import RectifiedFlow
    >>> RectifiedFlow.from_config(RectifiedFlow(shift=3.0).get_config()).shift
    3.0
    """

    @classmethod
    def from_config(cls, config: Config) -> Any:
        """Returns the object of a config."""
        make: Any = cls
        return make(**config)
