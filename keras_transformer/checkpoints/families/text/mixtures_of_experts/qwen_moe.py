"""Qwen2-MoE and Qwen3-MoE: transformers' `Qwen2MoeModel`, `Qwen3MoeModel`, and their heads; and what successors share."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import keras

from keras_transformer.checkpoints.building.decoders import (
    attention_entries,
    decoder_entries,
    decoder_options,
    gated_feedforward_entries,
    head_width,
    layer_windows,
    norm_entries,
)
from keras_transformer.checkpoints.building.heads import decoder_heads
from keras_transformer.checkpoints.building.model_size import model_size
from keras_transformer.checkpoints.building.rotary import rotary
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.families.text.llama_like.llama import Llama
from keras_transformer.checkpoints.layouts import Matrix, Stacked
from keras_transformer.checkpoints.mapping import Entry, linear
from keras_transformer.feedforward import GatedFeedForward, MixtureOfExperts, SharedExpertMixture, TopKRouter
from keras_transformer.layers.norms import RMSNormalization
from keras_transformer.models.building.rotary_attention import GroupedSize, rotary_attention
from keras_transformer.models.text.decoders.decoder import Decoder

# The kernel of all experts here, and the matrix of one expert there.
_KERNELS = {"gate_kernel": "gate_proj", "hidden_kernel": "up_proj", "output_kernel": "down_proj"}


class Qwen2Moe(Llama):
    """Qwen2-MoE: Yang et al., arXiv 2407.10671, section 2.2.2: fine-grained experts beside a shared one."""

    heads = decoder_heads(names=("CausalLM", "SequenceClassification"))

    def backbone(self, config: Config) -> keras.Model:
        size, options = model_size(config), decoder_options(config)
        width = head_width(config)
        attention = rotary_attention(
            GroupedSize(size, config.integer("num_key_value_heads", 16), width),
            rotary(config, width),
            window=_windows(config),
            dropout=options["attention_dropout"],
            use_bias=config.flag("qkv_bias", True),
            use_output_bias=False,
        )
        shared = config.integer("shared_expert_intermediate_size", 5632)
        norm = RMSNormalization(epsilon=options["rms_norm_epsilon"])
        return qwen_moe(config, attention, norm, Experts(60, 4, 1408, shared), name="qwen2_moe")

    def entries(self, config: Config) -> list[Entry]:
        return qwen_moe_entries(config, 60, shared=True, bias=config.flag("qkv_bias", True))


class Experts(NamedTuple):
    """The defaults of the experts of a Qwen.

    Attributes:
        num_experts: int.
        chosen: int. The experts of each token.
        width: int. The intermediate width of an expert.
        shared: int or None. The intermediate width of the shared expert, as configured; None for none.
        normalize: bool. Whether the weights of the chosen experts sum to 1.
    """

    num_experts: int
    chosen: int
    width: int
    shared: int | None = None
    normalize: bool = False


def qwen_moe(
    config: Config,
    attention: keras.layers.Layer | list[keras.layers.Layer],
    norm: keras.layers.Layer,
    experts: Experts,
    *,
    name: str,
) -> keras.Model:
    """Returns the decoder of a Qwen with experts in some or all blocks.

    Args:
        config: `Config`.
        attention: layer to copy, or a list of layers that repeats over the blocks.
        norm: norm layer to copy.
        experts: `Experts`.
        name: str.
    """
    size, activation = model_size(config), decoder_options(config)["activation"]
    width = config.integer("moe_intermediate_size", experts.width)
    mixture: keras.layers.Layer = MixtureOfExperts(width, _router(config, experts), activation=activation)
    if experts.shared is not None:
        mixture = SharedExpertMixture(mixture, GatedFeedForward(experts.shared, activation))
    dense = GatedFeedForward(size.intermediate_dim, activation)
    return Decoder(
        size,
        config.integer("vocab_size"),
        position=None,
        norm=norm,
        attention=attention,
        feedforward=[mixture if sparse else dense for sparse in _sparse_blocks(config)],
        name=name,
    )


def qwen_moe_entries(
    config: Config,
    num_experts: int,
    *,
    shared: bool,
    mixer_entries: Callable[..., list[Entry]] = attention_entries,
    **attention: bool,
) -> list[Entry]:
    """Returns the mapping of `qwen_moe`; `attention`: options of `mixer_entries`, a function like `attention_entries`."""
    count = _num_experts(config, num_experts)
    sparse = iter(_sparse_blocks(config))

    def block(theirs: str, ours: str) -> list[Entry]:
        fed = f"{ours}/feedforward"
        entries = [*norm_entries(theirs, ours), *mixer_entries(theirs, ours, **attention)]
        if not next(sparse):
            return [*entries, *gated_feedforward_entries(theirs, ours)]
        if not shared:
            return [*entries, *expert_entries(f"{theirs}.mlp", fed, count)]
        names = (("gate_proj", "gate"), ("up_proj", "hidden"), ("down_proj", "output"))
        for their, our in names:
            entries += linear(f"{theirs}.mlp.shared_expert.{their}", f"{fed}/shared/{our}", bias=False)
        entries += linear(f"{theirs}.mlp.shared_expert_gate", f"{fed}/shared_gate", bias=False)
        return [*entries, *expert_entries(f"{theirs}.mlp", f"{fed}/experts", count)]

    return decoder_entries(config, block)


def expert_entries(theirs: str, ours: str, count: int) -> list[Entry]:
    """Returns the mapping of the router and of the experts, each of which has separate tensors."""
    entries = linear(f"{theirs}.gate", f"{ours}/router", bias=False)
    for our, their in _KERNELS.items():
        names = tuple(f"{theirs}.experts.{index}.{their}.weight" for index in range(count))
        entries.append(Entry(names, (f"{ours}/{our}",), Stacked(count, Matrix())))
    return entries


def _router(config: Config, experts: Experts) -> TopKRouter:
    count = _num_experts(config, experts.num_experts)
    chosen = config.integer("num_experts_per_tok", experts.chosen, maximum=count)
    normalize = config.flag("norm_topk_prob", experts.normalize)
    if chosen == 1 and normalize:
        config.only("norm_topk_prob", False)
    # transformers' loss is a mean over layers and a sum over the chosen experts, and off by default.
    weight = config.number("router_aux_loss_coef", 0.001) * chosen / max(sum(_sparse_blocks(config)), 1)
    return TopKRouter(
        count,
        chosen,
        load_balancing_weight=weight if config.flag("output_router_logits", False) else 0.0,
        normalize=normalize,
    )


def _num_experts(config: Config, default: int) -> int:
    return config.integer("num_experts", config.integer("num_local_experts", default))


def _sparse_blocks(config: Config) -> list[bool]:
    """Returns whether each block has experts."""
    step, dense = config.integer("decoder_sparse_step", 1), config.get("mlp_only_layers", [])
    if not isinstance(dense, list) or not all(isinstance(index, int) for index in dense):
        config.only("mlp_only_layers", "a list of indices of layers")
    return [(index + 1) % step == 0 and index not in dense for index in range(config.integer("num_hidden_layers"))]


def _windows(config: Config) -> list[int | None]:
    """Returns the window of each block; by default every other one of the first "max_window_layers"."""
    width = config.integer("sliding_window", 4096) if config.flag("use_sliding_window", False) else None
    last = config.integer("max_window_layers", 28, minimum=0)
    types = [
        "sliding_attention" if width is not None and index % 2 == 0 and index < last else "full_attention"
        for index in range(config.integer("num_hidden_layers"))
    ]
    return layer_windows(config, width, types)


class Qwen3Moe(Llama):
    """Qwen3-MoE: Yang et al., arXiv 2505.09388, section 2: no shared expert."""

    heads = decoder_heads(names=("CausalLM", "SequenceClassification"))

    def backbone(self, config: Config) -> keras.Model:
        options, width = decoder_options(config), head_width(config)
        norm = RMSNormalization(epsilon=options["rms_norm_epsilon"])
        attention = rotary_attention(
            GroupedSize(model_size(config), config.integer("num_key_value_heads", 4), width),
            rotary(config, width),
            window=config.integer("sliding_window", 4096) if config.flag("use_sliding_window", False) else None,
            dropout=options["attention_dropout"],
            query_key_norm=norm,
            use_bias=config.flag("attention_bias", False),
        )
        return qwen_moe(config, attention, norm, Experts(128, 8, 768), name="qwen3_moe")

    def entries(self, config: Config) -> list[Entry]:
        bias = config.flag("attention_bias", False)
        return qwen_moe_entries(config, 128, shared=False, bias=bias, output_bias=bias, norms=True)
