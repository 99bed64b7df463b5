"""Rotary positions as configs of transformers describe them, of version 5 and before."""

import math

from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.errors import ConfigError
from keras_transformer.positions import LinearScaling, Llama3Scaling, Rotary, YaRNScaling


def rotary(config, width, theta=10000.0, layer_type=None):
    """The position of a config.

    Args:
        config: `Config`, with "rope_parameters"; or with "rope_theta" and "rope_scaling", as before version 5.
        width: int: of the heads.
        theta: float: where the config has none.
        layer_type: str: the part of "rope_parameters" that is wanted, such as "full_attention"; None for the whole.

    Returns:
        `positions.Rotary`, which turns halves.

    Raises:
        ConfigError: a scaling that is not built, or settings of one that are missing or out of range.
    """
    settings = _settings(config, layer_type)
    kind = settings.choice("rope_type", {name: name for name in ("default", *_SCALINGS)}, "default")
    share = settings.number("partial_rotary_factor", 1.0)
    turned = int(width * share)
    return Rotary(
        settings.number("rope_theta", theta),
        "halves",
        rotary_dim=None if turned == width else turned,
        scaling=_scaling(kind, settings, config),
        # Dynamic scaling changes nothing up to this length; beyond it angles would depend on the longest row of a batch.
        max_sequence_length=config.integer("max_position_embeddings") if kind == "dynamic" else None,
    )


def _settings(config, layer_type):
    """One flat `Config` of what is said about the position."""
    if "rope_parameters" in config:
        found = config.section("rope_parameters")
        found = found.section(layer_type) if layer_type is not None and layer_type in found else found
        values, source = found.values, found.source
    else:
        found = config.section("rope_scaling") if "rope_scaling" in config else Config({}, config.source)
        outside = {name: config.get(name) for name in ("rope_theta", "partial_rotary_factor")}
        values, source = outside | found.values, found.source
    return Config({"rope_type": values.get("type"), **values}, source)


def _scaling(kind, settings, config):
    try:
        return _SCALINGS[kind](settings, config) if kind in _SCALINGS else None
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(f"{settings.source}: {error}") from error


def _original_length(settings, config):
    most = config.integer("max_position_embeddings")
    return config.integer(_ORIGINAL, settings.integer(_ORIGINAL, most))


def _linear(settings, config):
    return LinearScaling(settings.number("factor"))


def _llama3(settings, config):
    return Llama3Scaling(
        settings.number("factor"),
        _original_length(settings, config),
        settings.number("low_freq_factor"),
        settings.number("high_freq_factor"),
    )


def _yarn(settings, config):
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


def _magnitude(settings, factor):
    def stretched(by):
        return 1.0 if factor <= 1 else 0.1 * by * math.log(factor) + 1.0

    own, all_dims = settings.number("mscale", 0.0), settings.number("mscale_all_dim", 0.0)
    return stretched(own) / stretched(all_dims) if own and all_dims else stretched(1.0)


_ORIGINAL = "original_max_position_embeddings"
_SCALINGS = {"linear": _linear, "llama3": _llama3, "yarn": _yarn, "dynamic": lambda settings, config: None}
