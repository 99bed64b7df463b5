"""Settings of a checkpoint, read with their kind and range checked."""

import math

from keras_transformer.checkpoints.errors import ConfigError

_LARGEST = 2**31 - 1
_MISSING = object()

# transformers' names of activations, and Keras's or ours.
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_fast": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}


class Config:
    """The content of a `config.json`.

    Args:
        values: dict.
        source: str: what to name in errors, such as the path of the file.
        tensors: names of the tensors beside it, where a setting is told by what is there; None where they are not known.

    Raises:
        ConfigError: by every method, where a setting is missing and has no default, is of the wrong kind, or out of range.
    """

    def __init__(self, values, source="config.json", tensors=None):
        self.values = values
        self.source = source
        self._tensors = tensors

    @property
    def tensors(self):
        """frozenset of the names of the tensors beside it; empty where they are not known."""
        return frozenset(self._tensors or ())

    def __contains__(self, name):
        return self.values.get(name) is not None

    def get(self, name, default=None):
        """A setting as it stands; `default` where it is missing or null."""
        value = self.values.get(name)
        return default if value is None else value

    def integer(self, name, default=_MISSING, minimum=1, maximum=_LARGEST):
        """A whole number in a range."""
        value = self._required(name, default)
        if value is default:
            return value
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._error(name, value, "an integer")
        if not minimum <= value <= maximum:
            raise self._error(name, value, f"an integer from {minimum} to {maximum}")
        return value

    def tokens(self, name):
        """The id of a token, or a tuple of several; None for none."""
        value = self.get(name)
        ids = value if isinstance(value, list) else [] if value is None else [value]
        if any(isinstance(each, bool) or not isinstance(each, int) or not 0 <= each <= _LARGEST for each in ids):
            raise self._error(name, value, "the id of a token, or a list of such")
        return (ids[0] if len(ids) == 1 else tuple(ids)) if ids else None

    def number(self, name, default=_MISSING):
        """A finite number, as a float."""
        value = self._required(name, default)
        if value is default:
            return value
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise self._error(name, value, "a number")
        return float(value)

    def flag(self, name, default=_MISSING):
        """True or False."""
        value = self._required(name, default)
        if not isinstance(value, bool):
            raise self._error(name, value, "true or false")
        return value

    def choice(self, name, choices, default=_MISSING):
        """What a name stands for in the dict `choices`; `default` is a key of it."""
        value = self._required(name, default)
        if not isinstance(value, str) or value not in choices:
            raise self._error(name, value, f"one of {', '.join(map(repr, choices))}")
        return choices[value]

    def activation(self, name="hidden_act", default="gelu"):
        """The name of an activation, as Keras or `feedforward` knows it."""
        return self.choice(name, ACTIVATIONS, default)

    def only(self, name, value, default=_MISSING):
        """Refuses a variant that is not built: the setting has to have this value, or be missing."""
        found = self.get(name, value if default is _MISSING else default)
        if found != value:
            raise self._error(name, found, f"{value!r}, the one that is built")

    def section(self, name):
        """A `Config` within this one, such as "text_config"."""
        value = self._required(name, _MISSING)
        if not isinstance(value, dict):
            raise self._error(name, value, "a section")
        return self.within(value, name)

    def within(self, values, name):
        """A `Config` of other values beside the same tensors, which errors call a section of this one."""
        return Config(values, f"{self.source}: {name}", self._tensors)

    def check_depth(self, name, depth):
        """Refuses more layers than there are tensors, before a graph of them is built."""
        if self._tensors is not None and depth > len(self._tensors):
            raise ConfigError(f"{self.source}: {name!r} asks for {depth} layers, of {len(self._tensors)} tensors.")

    @property
    def num_labels(self):
        """int: how many classes a head tells apart; transformers' default is 2."""
        labels = self.get("id2label")
        return len(labels) if isinstance(labels, dict) and labels else self.integer("num_labels", 2)

    def _required(self, name, default):
        value = self.values.get(name)
        if value is not None:
            return value
        if default is _MISSING:
            raise ConfigError(f"{self.source} has no {name!r}.")
        return default

    def _error(self, name, value, expected):
        return ConfigError(f"{self.source}: {name!r} is {str(value)[:80]!r}; expected {expected}.")
