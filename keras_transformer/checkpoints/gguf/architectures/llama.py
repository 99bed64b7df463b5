"""Llama, Mistral and Qwen, and what the decoders after them share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_transformer.checkpoints.building.decoders import grouped_heads, head_width
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.errors import ConfigError
from keras_transformer.checkpoints.gguf.architecture import Arrays, GgufArchitecture, Place, Shapes
from keras_transformer.checkpoints.gguf.layouts import Interleaved, Same
from keras_transformer.checkpoints.gguf.metadata import Metadata
from keras_transformer.utils.types import JsonObject

DECODER_SETTINGS = {
    "max_position_embeddings": "{arch}.context_length",
    "hidden_size": "{arch}.embedding_length",
    "num_hidden_layers": "{arch}.block_count",
    "intermediate_size": "{arch}.feed_forward_length",
    "num_attention_heads": "{arch}.attention.head_count",
    "num_key_value_heads": "{arch}.attention.head_count_kv",
    "head_dim": "{arch}.attention.key_length",
}
DECODER_NUMBERS = {
    "rms_norm_eps": "{arch}.attention.layer_norm_rms_epsilon",
    "rope_theta": "{arch}.rope.freq_base",
}
DECODER_PLACES = {
    "token_embd": Place("model.embed_tokens"),
    "output_norm": Place("model.norm"),
    "output": Place("lm_head"),
    "blk.{}.attn_norm": Place("model.layers.{}.input_layernorm"),
    "blk.{}.attn_q": Place("model.layers.{}.self_attn.q_proj"),
    "blk.{}.attn_k": Place("model.layers.{}.self_attn.k_proj"),
    "blk.{}.attn_v": Place("model.layers.{}.self_attn.v_proj"),
    "blk.{}.attn_output": Place("model.layers.{}.self_attn.o_proj"),
    "blk.{}.ffn_norm": Place("model.layers.{}.post_attention_layernorm"),
    "blk.{}.ffn_gate": Place("model.layers.{}.mlp.gate_proj"),
    "blk.{}.ffn_up": Place("model.layers.{}.mlp.up_proj"),
    "blk.{}.ffn_down": Place("model.layers.{}.mlp.down_proj"),
}
# Factors of the wavelengths of Llama 3.1 and later, of which the metadata has no settings.
_FACTORS = "rope_freqs.weight"
_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


class Decoder(GgufArchitecture):
    """What decoders with rotary positions and gated feed-forward networks share."""

    prefix = "model."
    settings = DECODER_SETTINGS
    numbers = DECODER_NUMBERS
    places = DECODER_PLACES

    def config(self, metadata: Metadata, tensors: Shapes, extra: Arrays) -> JsonObject:
        refuse_experts(metadata)
        values = super().config(metadata, tensors, extra)
        values |= {"tie_word_embeddings": "output.weight" not in tensors} | rope_scaling(metadata)
        values["attention_bias"] = any(name.endswith("attn_q.bias") for name in tensors)
        return values | {"vocab_size": vocabulary_size(metadata, tensors)}

    def metadata(self, config: Config) -> JsonObject:
        width = head_width(config)
        values = super().metadata(config) | rope_metadata(self.name, config)
        return values | {
            f"{self.name}.attention.head_count_kv": grouped_heads(config)["num_key_value_heads"],
            f"{self.name}.attention.key_length": width,
            f"{self.name}.attention.value_length": width,
            f"{self.name}.rope.dimension_count": width,
            f"{self.name}.vocab_size": config.integer("vocab_size"),
        }


class Llama(Decoder):
    """Llama and Mistral. The rows of queries and keys are interleaved."""

    name = "llama"
    model_types = ("llama", "mistral")
    head = "LlamaForCausalLM"
    extra = (_FACTORS,)

    def config(self, metadata: Metadata, tensors: Shapes, extra: Arrays) -> JsonObject:
        values = super().config(metadata, tensors, extra)
        if "head_dim" not in values and "{arch}.rope.dimension_count" in metadata:
            values["head_dim"] = metadata.integer("{arch}.rope.dimension_count")
        values["mlp_bias"] = any(name.endswith("ffn_up.bias") for name in tensors)
        if _FACTORS in extra:
            values |= llama3_scaling(extra[_FACTORS], Config(values, metadata.source))
        return values

    def layout(self, place: Place, suffix: str, config: Config) -> Same:
        name = place.name.rpartition(".")[2]
        if name == "q_proj":
            return Interleaved(config.integer("num_attention_heads"))
        return Interleaved(grouped_heads(config)["num_key_value_heads"]) if name == "k_proj" else Same()

    def extra_tensors(self, config: Config) -> dict[str, np.ndarray]:
        settings = rope_settings(config)
        if settings.get("rope_type") != "llama3":
            return {}
        return {_FACTORS: llama3_factors(settings, settings["rope_theta"], head_width(config))}


def llama3_scaling(factors: np.ndarray, config: Config) -> JsonObject:
    """The scaling of Llama 3 as a setting, from stored factors of wavelengths.

    Raises:
        ConfigError: they come from another scaling.
    """
    scaling = {"rope_type": "llama3", "factor": float(factors.max()), **_LLAMA3}
    expected = llama3_factors(scaling, config.number("rope_theta", 10000.0), head_width(config))
    if factors.shape != expected.shape or not np.allclose(factors, expected, rtol=1e-4):
        raise ConfigError(
            f"{config.source}: {_FACTORS!r} are not the factors of Llama 3, the only ones that are supported."
        )
    return {"rope_scaling": scaling}


def llama3_factors(scaling: Mapping[str, Any], theta: float, width: int) -> np.ndarray:
    """The factors by which Llama 3.1 stretches wavelengths, `(width / 2,)`.

    Args:
        scaling: dict of the settings in transformers.
        theta: base of the wavelengths.
        width: of a head.
    """
    wavelengths = 2 * np.pi * theta ** (np.arange(0, width, 2, dtype="float64") / width)
    length, low, high = (scaling[name] for name in ("original_max_position_embeddings", *list(_LLAMA3)[:2]))
    smooth = np.clip((length / wavelengths - low) / (high - low), 0.0, 1.0)
    return (1 / ((1 - smooth) / scaling["factor"] + smooth)).astype("float32")


def rope_scaling(metadata: Metadata) -> JsonObject:
    """The scaling of rotary positions as a setting; empty for none.

    Raises:
        ConfigError: it is neither linear nor YaRN.
    """
    kind = metadata.text("{arch}.rope.scaling.type", "none")
    if kind == "none":
        return {}
    if kind not in ("linear", "yarn"):
        raise ConfigError(f"{metadata.source}: a rope scaling of the type {kind[:40]!r} is not supported.")
    scaling: JsonObject = {"rope_type": kind, "factor": metadata.number("{arch}.rope.scaling.factor")}
    if kind == "yarn":
        length = metadata.integer("{arch}.rope.scaling.original_context_length")
        scaling["original_max_position_embeddings"] = length
        for name, key in (("attention_factor", "attn_factor"), ("beta_fast", "beta_fast"), ("beta_slow", "beta_slow")):
            if f"{{arch}}.rope.scaling.yarn_{key}" in metadata:
                scaling[name] = metadata.number(f"{{arch}}.rope.scaling.yarn_{key}")
    return {"rope_scaling": scaling}


def rope_settings(config: Config, layer_type: str = "full_attention") -> JsonObject:
    """The settings of rotary positions of a config of transformers, of version 5 or earlier."""
    settings = config.get("rope_parameters") or {
        "rope_theta": config.number("rope_theta", 10000.0),
        **config.get("rope_scaling", {}),
    }
    settings = settings.get(layer_type, settings)
    return {"rope_theta": 10000.0, "rope_type": settings.get("type", "default"), **settings}


def rope_metadata(name: str, config: Config) -> JsonObject:
    """The keys of rotary positions; the factors of Llama 3 are a tensor.

    Raises:
        ConfigError: there is no key for the scaling.
    """
    settings = rope_settings(config)
    found: JsonObject = {f"{name}.rope.freq_base": float(settings["rope_theta"])}
    kind = settings["rope_type"]
    if kind in ("default", "llama3"):
        return found
    if kind not in ("linear", "yarn"):
        raise ConfigError(f"{config.source}: GGUF files have no key for a rope scaling of the type {kind!r}.")
    keys = {"factor": "factor"}
    if kind == "yarn":
        keys |= {"attention_factor": "yarn_attn_factor", "beta_fast": "yarn_beta_fast", "beta_slow": "yarn_beta_slow"}
        length = settings.get("original_max_position_embeddings", config.integer("max_position_embeddings"))
        found[f"{name}.rope.scaling.original_context_length"] = length
    scalings = {f"{name}.rope.scaling.{key}": settings[each] for each, key in keys.items() if settings.get(each)}
    return found | {f"{name}.rope.scaling.type": kind} | {key: float(value) for key, value in scalings.items()}


def vocabulary_size(metadata: Metadata, tensors: Shapes) -> int:
    """The number of rows of the embedding.

    Raises:
        ConfigError: there is none.
    """
    if "token_embd.weight" not in tensors:
        raise ConfigError(f"{metadata.source} has no tensor 'token_embd.weight'.")
    return tensors["token_embd.weight"][0]


def refuse_experts(metadata: Metadata) -> None:
    """Raises `ConfigError` for a mixture of experts."""
    if metadata.integer("{arch}.expert_count", 0):
        raise ConfigError(f"{metadata.source} is a mixture of experts, which is not read from GGUF files.")


class Qwen2(Decoder):
    """Qwen 2: biases of queries, keys and values."""

    name = "qwen2"
    model_types = ("qwen2",)
    head = "Qwen2ForCausalLM"


class Qwen3(Decoder):
    """Qwen 3: norms of queries and keys."""

    name = "qwen3"
    model_types = ("qwen3",)
    head = "Qwen3ForCausalLM"
    places = {
        **DECODER_PLACES,
        "blk.{}.attn_q_norm": Place("model.layers.{}.self_attn.q_norm"),
        "blk.{}.attn_k_norm": Place("model.layers.{}.self_attn.k_norm"),
    }
