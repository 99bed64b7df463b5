"""Multi-head latent attention in torch, with the weights of our layer: a prompt, and the last token after the others."""

import math

import numpy as np
import torch
from torch import nn
from transformers import DeepseekV3Config
from transformers.cache_utils import DynamicCache
from transformers.models.deepseek_v3 import modeling_deepseek_v3 as code

from keras_transformer.checkpoints.layouts import HeadByHead


class Transformers:
    """`DeepseekV3Attention` of transformers, with its cache of latents.

    Args:
        layer: our layer.
        x: float `(1, T, D)`.
        padded: bool. Whether values are padded to the width of the keys.
    """

    def __init__(self, layer, x, padded=False):
        config = DeepseekV3Config(
            hidden_size=x.shape[2],
            num_attention_heads=layer.num_heads,
            num_key_value_heads=layer.num_heads,
            kv_lora_rank=layer.latent_dim,
            q_lora_rank=layer.query_latent_dim,
            qk_nope_head_dim=layer.key_dim,
            qk_rope_head_dim=layer.rotary_dim,
            v_head_dim=layer.value_dim,
            max_position_embeddings=x.shape[1],
            num_hidden_layers=1,
            attn_implementation="sdpa",
        )
        self.module, self.config, self.x = code.DeepseekV3Attention(config, 0).eval(), config, torch.tensor(x)
        self.module.load_state_dict({name: torch.tensor(array) for name, array in _weights(layer).items()})
        if padded:
            self.module.config._attn_implementation = _register_padded()
        positions = torch.arange(x.shape[1])[None]
        self.angles = code.DeepseekV3RotaryEmbedding(config)(self.x, positions)
        self.cache = None
        self._fill()

    def prefill(self):
        with torch.inference_mode():
            return self._run(self.x, 0, DynamicCache(config=self.config))

    def decode(self):
        with torch.inference_mode():
            output = self._run(self.x[:, -1:], self.x.shape[1] - 1, self.cache)
            self.cache.crop(-1)
            return output

    @torch.inference_mode()
    def _fill(self):
        self.cache = DynamicCache(config=self.config)
        self._run(self.x[:, :-1], 0, self.cache)

    def _run(self, x, start, cache):
        angles = tuple(each[:, start : start + x.shape[1]] for each in self.angles)
        return self.module(x, angles, None, past_key_values=cache)[0].numpy()


class Absorbed(Transformers):
    """The absorbed form of DeepSeek's own code, which keeps a fixed cache: the products of `torch.einsum` there."""

    def __init__(self, layer, x):
        super().__init__(layer, x)
        kernel = self.module.kv_b_proj.weight.view(layer.num_heads, -1, layer.latent_dim)
        self.key, self.value = kernel.split([layer.key_dim, layer.value_dim], dim=1)
        self.latents, self.keys = (
            torch.cat([tensor[:, 0], torch.zeros(1, 1, tensor.shape[3])], dim=1)
            for tensor in (self.cache.layers[0].keys, self.cache.layers[0].values)
        )

    @torch.inference_mode()
    def decode(self):
        module, config, x = self.module, self.config, self.x[:, -1:]
        query = (
            module.q_proj(x)
            if config.q_lora_rank is None
            else module.q_b_proj(module.q_a_layernorm(module.q_a_proj(x)))
        )
        query = query.unflatten(2, (config.num_attention_heads, -1))
        query, turning = query.split([config.qk_nope_head_dim, config.qk_rope_head_dim], dim=-1)
        latent, key = module.kv_a_proj_with_mqa(x).split([config.kv_lora_rank, config.qk_rope_head_dim], dim=-1)
        angles = tuple(each[:, -1:] for each in self.angles)
        turned, key = code.apply_rotary_pos_emb_interleave(turning.transpose(1, 2), key[:, None], *angles)
        self.latents[:, -1:], self.keys[:, -1:] = module.kv_a_layernorm(latent), key[:, 0]
        query = torch.einsum("bshd,hdc->bshc", query, self.key)
        scores = torch.einsum("bshc,btc->bsht", query, self.latents)
        scores += torch.einsum("bshr,btr->bsht", turned.transpose(1, 2), self.keys)
        weights = (scores / math.sqrt(module.qk_head_dim)).softmax(dim=-1)
        context = torch.einsum("bsht,btc->bshc", weights, self.latents)
        context = torch.einsum("bshc,hdc->bshd", context, self.value)
        return module.o_proj(context.flatten(2)).numpy()


def _weights(layer):
    """Returns the weights of our layer under the names of transformers."""
    kernel = {name: np.asarray(getattr(layer, f"{name}_dense").kernel) for name in ("query", "latent", "key", "value")}
    query = "q_proj" if layer.query_latent_dim is None else "q_b_proj"
    found = {
        f"{query}.weight": kernel["query"].reshape(kernel["query"].shape[0], -1).T,
        "kv_a_proj_with_mqa.weight": kernel["latent"].T,
        "kv_a_layernorm.weight": np.asarray(layer.latent_norm.scale),
        "kv_b_proj.weight": HeadByHead().write([kernel["key"], kernel["value"]])[0],
        "o_proj.weight": np.asarray(layer.output_dense.kernel).reshape(-1, layer.output_dense.kernel.shape[2]).T,
    }
    if layer.query_latent_dim is not None:
        found["q_a_proj.weight"] = np.asarray(layer.query_down.kernel).T
        found["q_a_layernorm.weight"] = np.asarray(layer.query_norm.scale)
    return {name: np.ascontiguousarray(array) for name, array in found.items()}


def _register_padded():
    """Returns the name of an attention function of transformers: the fused kernel with padded values."""

    def attend(module, query, key, value, mask, dropout=0.0, scaling=None, **options):
        width = value.shape[-1]
        value = nn.functional.pad(value, (0, query.shape[-1] - width))
        is_causal = query.shape[2] > 1
        output = nn.functional.scaled_dot_product_attention(query, key, value, scale=scaling, is_causal=is_causal)
        return output[..., :width].transpose(1, 2).contiguous(), None

    code.ALL_ATTENTION_FUNCTIONS["padded_sdpa"] = attend
    return "padded_sdpa"


PEERS = {
    "prefill": {
        "transformers": Transformers,
        "transformers, padded values": lambda layer, x: Transformers(layer, x, padded=True),
    },
    "decode": {"transformers": Transformers, "torch, absorbed": Absorbed},
}
