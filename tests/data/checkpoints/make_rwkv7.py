"""Makes the folders of RWKV-7: python make_rwkv7.py.

With flash-linear-attention 0.6.0, transformers 5.23, torch 2.13, and triton and einops, which it imports. Its kernels need a
GPU: here its reference functions in torch take their place, and the recurrence is its naive one, token by token.
"""

import numpy as np
import torch
from fla.layers import rwkv7 as layers
from fla.models.rwkv7 import RWKV7Config
from fla.models.rwkv7 import modeling_rwkv7 as models
from fla.modules.token_shift import token_shift_ref
from fla.ops.generalized_delta_rule.dplr.naive import dplr_recurrence
from fla.ops.rwkv7.fused_addcmul import torch_addcmul_rwkv7
from fla.ops.rwkv7.fused_k_update import k_update_ref
from fla.ops.rwkv7.gate_output_correction import gate_output_correction_ref
from make_decoders import END, NEW, PROMPTS, SPECIAL, VOCABULARY
from writing import build, gradients, ragged_tokens, run, write

CONFIG = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "head_dim": 8,
    "decay_low_rank_dim": 3,
    "gate_low_rank_dim": 5,
    "a_low_rank_dim": 4,
    "v_low_rank_dim": 2,
    "intermediate_size": 12,
    "fuse_norm": False,
    "fuse_cross_entropy": False,
    **SPECIAL,
}
FAMILIES = {
    "rwkv7": CONFIG,
    "rwkv7_tied": {
        **CONFIG,
        "num_hidden_layers": 2,
        "head_dim": 4,
        "intermediate_size": None,
        "hidden_ratio": 1.5,
        "norm_first": False,
        "norm_bias": False,
        "tie_word_embeddings": True,
    },
}
GRADIENTS = (
    "model.layers.0.attn.x_w",
    "model.layers.0.attn.w_lora.lora.2.bias",
    "model.layers.0.attn.v_proj.weight",
    "model.layers.1.attn.v_lora.lora.0.weight",
    "model.layers.1.attn.a_lora.lora.2.weight",
    "model.layers.1.attn.k_k",
    "model.layers.1.attn.k_a",
    "model.layers.1.attn.r_k",
    "model.layers.1.ffn.x_k",
)


def recurrence(r, w, k, v, a, b, scale, initial_state, output_final_state, **options):
    assert initial_state is None
    assert scale == 1.0
    heads = [x.transpose(1, 2) for x in (r * r.shape[-1] ** 0.5, k, v, a, b, w)]  # It scales queries.
    output, state = dplr_recurrence(*heads)
    return output.transpose(1, 2), state


def shift(x, cu_seqlens=None, output_cache=False, cache=None):
    assert cache is None
    return (token_shift_ref(x), None) if output_cache else token_shift_ref(x)


def main():
    layers.fused_addcmul_rwkv7, layers.fused_k_rwkv7 = torch_addcmul_rwkv7, k_update_ref
    layers.gate_output_correction = gate_output_correction_ref
    layers.chunk_rwkv7 = recurrence
    layers.fused_mul_recurrent_rwkv7 = lambda r, w, k, v, kk, a, **options: recurrence(
        r, w, k, v, -kk, kk * a, **options
    )
    layers.token_shift = models.token_shift = shift
    for name, settings in FAMILIES.items():
        config = RWKV7Config(**{**settings, "use_cache": False})
        model, more = speaking(config)
        token_ids, mask = ragged_tokens(VOCABULARY)
        inputs = {"input_ids": token_ids, "attention_mask": mask}
        outputs = {"logits": run(model, **inputs).logits.numpy()}
        if name == "rwkv7":
            more |= gradients(model, GRADIENTS, inputs, mask[..., None])
        write(f"{name}-CausalLM", model, {"token_ids": token_ids, "padding_mask": mask}, outputs, **more)


def speaking(config):
    """A model whose greedy texts do not end, and these, each prompt by itself and without a cache."""
    for seed in range(20):
        model = build(models.RWKV7ForCausalLM, config, seed)
        texts = [continuation(model, prompt) for prompt in PROMPTS]
        if END not in np.ravel(texts):
            width = max(map(len, PROMPTS))
            prompts = [[*prompt, *[-1] * (width - len(prompt))] for prompt in PROMPTS]
            return model, {"prompt": np.array(prompts, "int32"), "generated": np.array(texts, "int32")}
    raise AssertionError("No weights let RWKV-7 speak.")


def continuation(model, prompt):
    tokens = list(prompt)
    for _ in range(NEW):
        with torch.no_grad():
            tokens.append(int(model(torch.tensor([tokens])).logits[0, -1].argmax()))
    return tokens[len(prompt) :]


if __name__ == "__main__":
    main()
