"""The `adapter_config.json` of PEFT: what of it is supported, and the ranks and scales of modules."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from keras_transformer.checkpoints.errors import ConfigError
from keras_transformer.utils.types import JsonObject

# Settings that describe the training, or that the names of the tensors say as well.
_WITHOUT_EFFECT = {
    "auto_mapping",
    "base_model_name_or_path",
    "ensure_weight_tying",
    "eva_config",
    "exclude_modules",
    "fan_in_fan_out",
    "inference_mode",
    "layers_pattern",
    "layers_to_transform",
    "lora_dropout",
    "megatron_core",
    "peft_version",
    "qalora_group_size",
    "revision",
    "runtime_config",
    "target_modules",
    "task_type",
}
_READ = {"peft_type", "r", "lora_alpha", "use_rslora", "rank_pattern", "alpha_pattern", "bias", "init_lora_weights"}
_LARGEST = 2**31 - 1
_MAX_EXPRESSION, _MAX_REPETITIONS = 1000, 3
_REPETITION = re.compile(r"[*+{]")
_REPEATED_GROUP = re.compile(r"\)[*+{]")
# Other initializations change the weights of the model, too.
_INITIALIZATIONS = (None, True, False, "gaussian", "eva", "orthogonal")


class AdapterConfig:
    """The settings of an adapter.

    Args:
        values: dict, the content of the file.
        source: str. The name in errors.

    Raises:
        ConfigError: another method than LoRA, a feature that is not supported, or a setting of the wrong type.
    """

    def __init__(self, values: JsonObject, source: str) -> None:
        self._source = source
        if values.get("peft_type") != "LORA":
            raise ConfigError(f"{source}: 'peft_type' is {values.get('peft_type')!r}; only 'LORA' is supported.")
        used = [name for name, value in values.items() if value and name not in _WITHOUT_EFFECT | _READ]
        if values.get("bias", "none") != "none":
            used.append("bias")
        if values.get("init_lora_weights") not in _INITIALIZATIONS:
            used.append("init_lora_weights")
        if used:
            settings = ", ".join(f"{name}={values[name]!r:.60}" for name in used)
            raise ConfigError(f"{source}: not supported: {settings}. Supported are A and B of linear layers.")
        self._rank = self._positive("r", values.get("r"))
        self._alpha = self._positive("lora_alpha", values.get("lora_alpha", 8))
        self._ranks, self._alphas = (
            self._pattern(name, values.get(name)) for name in ("rank_pattern", "alpha_pattern")
        )
        self._is_rank_stabilized = bool(values.get("use_rslora"))

    def rank(self, module: str) -> float:
        """Returns the rank of a module, by its name."""
        return _of_pattern(self._ranks, module, self._rank)

    def alpha(self, module: str) -> float:
        """Returns the alpha of a module whose adapter is scaled by alpha / rank."""
        alpha = _of_pattern(self._alphas, module, self._alpha)
        return alpha * math.sqrt(self.rank(module)) if self._is_rank_stabilized else alpha

    def _positive(self, name, value):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= _LARGEST:
            raise ConfigError(
                f"{self._source}: {name!r} must be a positive number up to {_LARGEST}. Received: {value!r:.60}"
            )
        return value

    def _pattern(self, name, value):
        if not isinstance(value or {}, dict):
            raise ConfigError(f"{self._source}: {name!r} must be a dict. Received: {value!r:.60}")
        for key in value or {}:
            _check_expression(key, f"{self._source}: {name!r}")
        return {key: self._positive(name, each) for key, each in (value or {}).items()}


def _check_expression(key: str, source: str) -> None:
    """Refuses expressions that could take exponential time: repeated groups, and many repetitions."""
    is_slow = _REPEATED_GROUP.search(key) or len(_REPETITION.findall(key)) > _MAX_REPETITIONS
    if is_slow or len(key) > _MAX_EXPRESSION:
        raise ConfigError(f"{source}: the pattern {key[:60]!r} is too complex.")
    try:
        re.compile(key)
    except (re.error, RecursionError, OverflowError) as error:
        raise ConfigError(f"{source}: {key[:60]!r} is not a regular expression: {error}") from error


def _of_pattern(pattern: Mapping[str, float], module: str, default: float) -> float:
    """Returns the value of the first key that is the end of a module's name, as a regular expression, as PEFT does."""
    for key, value in pattern.items():
        if re.match(rf"(.*\.)?({key})$", module):
            return value
    return default
