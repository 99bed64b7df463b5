"""Configs and tensors of models of several parts, such as a tower of images and a decoder of text."""

from __future__ import annotations

from collections.abc import Mapping

from keras_transformer.checkpoints.config import Config


def section_with_defaults(config: Config, name: str, defaults: Mapping[str, object]) -> Config:
    """Returns the settings of a part, with the defaults of missing ones."""
    found = config.section(name).values if name in config else {}
    given = {key: value for key, value in found.items() if value is not None}
    return config.within({**defaults, **given}, name)


def find_prefix(config: Config, names: tuple[str, ...], ending: str = "") -> str:
    """Returns the name of a part in this checkpoint: the first one with a weight behind `ending`, else the first of all."""
    return next((name for name in names if f"{name}{ending}.weight" in config.tensors), names[0])


def with_end(config: Config, text: Config) -> Config:
    """Returns the config with the end of a text, which may be a setting of the decoder."""
    end = config.get("eos_token_id", text.get("eos_token_id"))
    return Config({**config.values, "eos_token_id": end}, config.source, config.tensors)
