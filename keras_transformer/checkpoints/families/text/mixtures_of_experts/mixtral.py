"""Mixtral: transformers\' `MixtralModel` and its heads."""

from __future__ import annotations

import keras

from keras_transformer.checkpoints.building.decoders import (
    attention_entries,
    decoder_entries,
    decoder_options,
    grouped_heads,
    head_width,
    norm_entries,
)
from keras_transformer.checkpoints.building.model_size import model_size
from keras_transformer.checkpoints.building.rotary import rotary
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.families.text.llama_like.llama import Llama, window
from keras_transformer.checkpoints.layouts import Matrix, Stacked
from keras_transformer.checkpoints.mapping import Entry, linear
from keras_transformer.feedforward import TopKRouter
from keras_transformer.models import Mixtral as MixtralModel

# The kernel of all experts here, and the matrix of one expert there.
_KERNELS = {"gate_kernel": "w1", "hidden_kernel": "w3", "output_kernel": "w2"}


class Mixtral(Llama):
    """Mixtral: Jiang et al., arXiv 2401.04088."""

    def backbone(self, config: Config) -> keras.Model:
        return MixtralModel(
            model_size(config),
            config.integer("vocab_size"),
            **grouped_heads(config, num_key_value_heads=8),
            router=router(config),
            window=window(config),
            position=rotary(config, head_width(config), 1e6),
            **decoder_options(config, rms_norm_epsilon=1e-5),
        )

    def entries(self, config: Config) -> list[Entry]:
        return decoder_entries(
            config,
            lambda theirs, ours: [
                *norm_entries(theirs, ours),
                *attention_entries(theirs, ours),
                *expert_entries(config, theirs, f"{ours}/feedforward"),
            ],
        )


def router(config: Config) -> TopKRouter:
    """Returns the router of Mixtral and its relatives."""
    count = _num_experts(config)
    # At least two: the weight of a single expert would always be 1.
    chosen = config.integer("num_experts_per_tok", 2, minimum=2, maximum=count)
    # transformers' loss is a mean over layers and a sum over the chosen experts, and off by default.
    weight = config.number("router_aux_loss_coef", 0.001) * chosen / config.integer("num_hidden_layers")
    return TopKRouter(
        count,
        chosen,
        jitter=config.number("router_jitter_noise", 0.0),
        load_balancing_weight=weight if config.flag("output_router_logits", False) else 0.0,
    )


def _num_experts(config: Config) -> int:
    return config.integer("num_local_experts", 8)


def expert_entries(config: Config, theirs: str, ours: str) -> list[Entry]:
    """Returns the mapping of the router and of the experts, each of which has separate tensors."""
    count = _num_experts(config)
    theirs = f"{theirs}.block_sparse_moe"
    entries = linear(f"{theirs}.gate", f"{ours}/router", bias=False)
    for our, their in _KERNELS.items():
        names = tuple(f"{theirs}.experts.{index}.{their}.weight" for index in range(count))
        entries.append(Entry(names, (f"{ours}/{our}",), Stacked(count, Matrix())))
    return entries
