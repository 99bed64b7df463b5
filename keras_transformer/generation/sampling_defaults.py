"""How a model is meant to be sampled, where a request does not say."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

from keras_transformer.utils.types import JsonObject

_INTEGERS = ("top_k",)


@dataclasses.dataclass(frozen=True)
class SamplingDefaults:
    """The sampling that the authors of a model recommend, as in `generation_config.json` of a checkpoint.

    A server takes it for what a request leaves out.

    Args:
        temperature: float from 0, which is greedy, to 100. Default 0.
        top_k: int >= 1 or None.
        top_p: float in (0, 1] or None.
        min_p: float in [0, 1] or None.
        repetition_penalty: float > 0. Default 1, for none.

    Raises:
        ValueError: a value is out of range; the message names it.

    Example:

    >>> SamplingDefaults(temperature=0.6, top_p=0.9)
    SamplingDefaults(temperature=0.6, top_k=None, top_p=0.9, min_p=None, repetition_penalty=1.0)
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        for name, (least, most, is_open) in _RANGES.items():
            value = getattr(self, name)
            if value is None and name in _OPTIONAL:
                continue
            kinds = int if name in _INTEGERS else (int, float)
            is_number = isinstance(value, kinds) and not isinstance(value, bool) and math.isfinite(value)
            if not is_number or not least <= value <= most or (is_open and value == least):
                words = f"{'above' if is_open else 'from'} {least} to {most}"
                raise ValueError(f"The default {name} of sampling must be {words}. Received: {value!r}")

    @classmethod
    def from_dict(cls, record: Mapping[str, object]) -> SamplingDefaults:
        """The defaults of a dict of some of the arguments.

        Raises:
            ValueError: an unknown name, or a value out of range.
        """
        names = [field.name for field in dataclasses.fields(cls)]
        unknown = sorted(record.keys() - set(names))
        if unknown:
            raise ValueError(f"Unknown defaults of sampling: {', '.join(unknown)}; valid: {', '.join(names)}")
        values: JsonObject = {name: value for name, value in record.items() if value is not None}
        return cls(**values)

    @classmethod
    def from_generation_config(cls, config: Mapping[str, object]) -> SamplingDefaults | None:
        """The defaults of a `generation_config.json`; None where it says nothing of sampling.

        Values that no sampler takes, such as `top_k` 0 for no limit, count as left out, as in transformers.

        Example:

        >>> SamplingDefaults.from_generation_config({"do_sample": True, "temperature": 0.2, "top_k": 0}).temperature
        0.2
        >>> SamplingDefaults.from_generation_config({"eos_token_id": 2}) is None
        True
        """
        names = ("do_sample", *_RANGES)
        if not any(config.get(name) is not None for name in names):
            return None
        found: dict[str, object] = {}
        for name in _RANGES:
            value = config.get(name)
            try:
                cls.from_dict({name: value})
            except ValueError:
                continue
            if value is not None:
                found[name] = value
        if not config.get("do_sample", False):
            found = {name: found[name] for name in found if name == "repetition_penalty"}
        else:
            found.setdefault("temperature", 1.0)
        return cls.from_dict(found)


# The least and the largest value of each, and whether the least itself is out of range.
_RANGES: dict[str, tuple[float, float, bool]] = {
    "temperature": (0, 100, False),
    "top_k": (1, 2**31 - 1, False),
    "top_p": (0, 1, True),
    "min_p": (0, 1, False),
    "repetition_penalty": (0.01, 100, False),
}
_OPTIONAL = ("top_k", "top_p", "min_p")
