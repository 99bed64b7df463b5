"""RWKV-4: transformers\' `RwkvModel` and its head."""

from __future__ import annotations

import keras

from keras_transformer.checkpoints.architecture import Architecture
from keras_transformer.checkpoints.building.heads import decoder_heads
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.layouts import Expanded
from keras_transformer.checkpoints.mapping import Entry, embedding, linear, norm, same
from keras_transformer.models import RWKV, Size

_HEADS = decoder_heads(lm_head="head")


class Rwkv(Architecture):
    """RWKV-4: Peng et al., arXiv 2305.13048.

    Against overflow in float16, transformers halves activations and matrices every "rescale_every" layers; norms cancel
    that, except for their epsilon. Here nothing is halved.
    """

    base_prefix = "rwkv."
    tied = {"head.weight": "rwkv.embeddings.weight"}
    heads = {"CausalLM": _HEADS["CausalLM"]}

    def backbone(self, config: Config) -> keras.Model:
        width = config.integer("hidden_size")
        return RWKV(
            Size(config.integer("num_hidden_layers"), width, 1, config.integer("intermediate_size", 4 * width)),
            config.integer("vocab_size"),
            channels=config.integer("attention_hidden_size", width),
            layer_norm_epsilon=config.number("layer_norm_epsilon", 1e-5),
            final_norm_epsilon=1e-5,  # transformers does not read the setting for the last norm.
        )

    def entries(self, config: Config) -> list[Entry]:
        entries = [
            *embedding("embeddings", "token_embedding"),
            *norm("blocks.0.pre_ln", "embedding_norm"),
            *norm("ln_out", "final_norm"),
        ]
        for index in range(config.integer("num_hidden_layers")):
            theirs, ours = f"blocks.{index}", f"decoder_block_{index}"
            entries += [
                *norm(f"{theirs}.ln1", f"{ours}/mixer_residual/norm"),
                *norm(f"{theirs}.ln2", f"{ours}/feedforward_residual/norm"),
                *_time_mixing(f"{theirs}.attention", f"{ours}/time_mixing"),
                *_channel_mixing(f"{theirs}.feed_forward", f"{ours}/channel_mixing"),
            ]
        return entries


def _time_mixing(theirs: str, ours: str) -> list[Entry]:
    return [
        same(f"{theirs}.time_decay", f"{ours}/log_decay"),
        same(f"{theirs}.time_first", f"{ours}/bonus"),
        *_mixes(theirs, ours, ("key", "value", "receptance")),
        *(entry for name in ("key", "value", "receptance", "output") for entry in _dense(theirs, ours, name, name)),
    ]


def _channel_mixing(theirs: str, ours: str) -> list[Entry]:
    return [
        *_mixes(theirs, ours, ("key", "receptance")),
        *_dense(theirs, ours, "key", "key"),
        *_dense(theirs, ours, "receptance", "receptance"),
        *_dense(theirs, ours, "value", "output"),
    ]


def _mixes(theirs: str, ours: str, names: tuple[str, ...]) -> list[Entry]:
    return [Entry((f"{theirs}.time_mix_{name}",), (f"{ours}/token_shift/mix_{name}",), Expanded(2)) for name in names]


def _dense(theirs: str, ours: str, their_name: str, our_name: str) -> list[Entry]:
    return linear(f"{theirs}.{their_name}", f"{ours}/{our_name}", bias=False)
