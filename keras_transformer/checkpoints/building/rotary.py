"""Rotary positions from configs of transformers, version 5 and earlier."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.errors import ConfigError
from keras_transformer.positions import (
    DynamicNTKScaling,
    LinearScaling,
    Llama3Scaling,
    LongRoPEScaling,
    MultimodalRotary,
    Rotary,
    YaRNScaling,
)


def rotary(
    config: Config,
    width: int,
    theta: float = 10000.0,
    layer_type: str | None = None,
    *,
    fraction: float = 1.0,
    names: Mapping[str, str] | None = None,
    layout: str = "halves",
) -> Rotary:
    """Returns the rotary position of a config.

    Args:
        config: `Config` with "rope_parameters"; or with "rope_theta" and "rope_scaling", as before version 5.
        width: int. The width of the heads.
        theta: float. The default of "rope_theta".
        layer_type: str. The section of "rope_parameters", such as "full_attention". Defaults to no section.
        fraction: float. The default of "partial_rotary_factor".
        names: dict of other names of scalings to those of transformers; None for none.
        layout: str. "halves" if it pairs the two halves of a head, or "pairs" for neighbors.

    Returns:
        `positions.Rotary`.

    Raises:
        ConfigError: a scaling is not supported, or its settings are missing or out of range.
    """
    settings = _settings(config, layer_type)
    known = {name: name for name in ("default", *_SCALINGS)} | dict(names or {})
    kind = settings.choice("rope_type", known, "default")
    fraction = settings.number("partial_rotary_factor", fraction)
    rotated = int(width * fraction)
    scaling = _scaling(kind, settings, config)
    if isinstance(scaling, LongRoPEScaling):
        for name in ("short_factor", "long_factor"):
            if len(getattr(scaling, name)) != rotated // 2:
                settings.only(name, f"a list of {rotated // 2} numbers")
    return Rotary(
        settings.number("rope_theta", theta),
        layout,
        rotary_dim=None if rotated == width else rotated,
        scaling=scaling,
        # Beyond it, cached keys would have other angles than those of a sequence that is read whole.
        max_sequence_length=scaling.original_max_sequence_length if kind in _BY_LENGTH else None,
    )


def multimodal_rotary(config: Config, width: int, theta: float, sections: tuple[int, ...]) -> MultimodalRotary:
    """Returns the rotary position of three axes of a config.

    Args:
        config: as of `rotary`.
        width: int. The width of the heads.
        theta: float. The default of "rope_theta".
        sections: tuple of ints. The default of "mrope_section".

    Raises:
        ConfigError: a scaling by the length of the sequence, which is not supported; sections that are not three, or do not
            add up to half of a head.
    """
    settings = _settings(config, None)
    known = {name: name for name in ("default", *_SCALINGS) if name not in _BY_LENGTH} | {"mrope": "default"}
    scaling = _scaling(settings.choice("rope_type", known, "default"), settings, config)
    found = settings.get("mrope_section", list(sections))
    wrong = not isinstance(found, list) or len(found) != 3 or not all(type(each) is int and each > 0 for each in found)
    if wrong or 2 * sum(found) != width:
        settings.only("mrope_section", f"three integers that add up to {width // 2}")
        raise ConfigError(f"{config.source}: the default of 'mrope_section', {found}, needs heads of {2 * sum(found)}.")
    return MultimodalRotary(tuple(found), settings.number("rope_theta", theta), scaling=scaling)


def score_scale(config: Config, width: int) -> float:
    """Returns the factor of the scores of heads of this width: that of DeepSeek, which YaRN's "mscale_all_dim" raises."""
    settings = _settings(config, None)
    scale, all_dims = 1.0 / math.sqrt(width), settings.number("mscale_all_dim", 0.0)
    if settings.get("rope_type", "default") == "default" or not all_dims:
        return scale
    return scale * _stretched(settings.number("factor"), all_dims) ** 2


def _settings(config: Config, layer_type: str | None) -> Config:
    """Returns one flat `Config` of all settings of the position."""
    if "rope_parameters" in config:
        found = config.section("rope_parameters")
        found = found.section(layer_type) if layer_type is not None and layer_type in found else found
        values, source = found.values, found.source
    else:
        found = config.section("rope_scaling") if "rope_scaling" in config else Config({}, config.source)
        outside = {name: config.get(name) for name in ("rope_theta", "partial_rotary_factor")}
        values, source = outside | found.values, found.source
    return Config({"rope_type": values.get("type"), **values}, source)


def _scaling(kind: str, settings: Config, config: Config) -> Any:
    try:
        return _SCALINGS[kind](settings, config) if kind in _SCALINGS else None
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(f"{settings.source}: {error}") from error


def _original_length(settings: Config, config: Config) -> int:
    most = config.integer("max_position_embeddings")
    return config.integer(_ORIGINAL, settings.integer(_ORIGINAL, most))


def _linear(settings: Config, config: Config) -> LinearScaling:
    return LinearScaling(settings.number("factor"))


def _llama3(settings: Config, config: Config) -> Llama3Scaling:
    return Llama3Scaling(
        settings.number("factor"),
        _original_length(settings, config),
        settings.number("low_freq_factor"),
        settings.number("high_freq_factor"),
    )


def _yarn(settings: Config, config: Config) -> YaRNScaling:
    length = _original_length(settings, config)
    factor = settings.number("factor", config.integer("max_position_embeddings") / length)
    return YaRNScaling(
        factor,
        length,
        settings.number("beta_fast", 32.0) or 32.0,
        settings.number("beta_slow", 1.0) or 1.0,
        magnitude=settings.number("attention_factor", _magnitude(settings, factor)),
        truncate=settings.flag("truncate", True),
    )


def _dynamic(settings: Config, config: Config) -> DynamicNTKScaling:
    return DynamicNTKScaling(settings.number("factor"), config.integer("max_position_embeddings"))


def _longrope(settings: Config, config: Config) -> LongRoPEScaling:
    length = _original_length(settings, config)
    factor = settings.number("factor", config.integer("max_position_embeddings") / length)
    return LongRoPEScaling(
        settings.numbers("short_factor"),
        settings.numbers("long_factor"),
        max(factor, 1.0),
        length,
        magnitude=settings.number("attention_factor", None),
    )


def _magnitude(settings: Config, factor: float) -> float:
    own, all_dims = settings.number("mscale", 0.0), settings.number("mscale_all_dim", 0.0)
    return _stretched(factor, own) / _stretched(factor, all_dims) if own and all_dims else _stretched(factor, 1.0)


def _stretched(factor: float, by: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * by * math.log(factor) + 1.0


_ORIGINAL = "original_max_position_embeddings"
_SCALINGS: dict[str, Callable[[Config, Config], object]] = {
    "linear": _linear,
    "llama3": _llama3,
    "yarn": _yarn,
    "dynamic": _dynamic,
    "longrope": _longrope,
}
# Those that depend on the length of the sequence.
_BY_LENGTH = ("dynamic", "longrope")
