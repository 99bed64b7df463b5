"""Makes the folders of decoders: python make_decoders.py [NAME ...] (transformers 5.23, torch 2.13)."""

import sys

import numpy as np
import torch
import transformers
from writing import HERE, build, gradients, ragged_tokens, run, write

VOCABULARY, END, NEW = 60, 3, 8
PROMPTS = ((7, 40, 12, 33, 9, 21, 50), (5, 58, 31), (17,))
SPECIAL = {"pad_token_id": 0, "bos_token_id": 4, "eos_token_id": END}
SIZE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 20,
    "max_position_embeddings": 32,
    **SPECIAL,
}
LLAMA = {**SIZE, "hidden_act": "gelu"}
THETA = {"rope_parameters": {"rope_type": "default", "rope_theta": 100.0}}
TIED, UNTIED = {"tie_word_embeddings": True}, {"tie_word_embeddings": False}
GPT2 = {
    "vocab_size": VOCABULARY,
    "n_embd": 16,
    "n_layer": 2,
    "n_head": 2,
    "n_inner": 20,
    "n_positions": 24,
    "activation_function": "silu",
    **SPECIAL,
}
BLOOM = {"vocab_size": VOCABULARY, "hidden_size": 24, "n_layer": 2, "n_head": 3, **SPECIAL}
GEMMA = {**SIZE, **THETA, "num_key_value_heads": 1, "head_dim": 8, "hidden_act": "silu", "attention_bias": True}
GEMMA2 = {
    **SIZE,
    **THETA,
    "hidden_activation": "silu",
    "attention_bias": True,
    "layer_types": ["full_attention", "sliding_attention"],
    "head_dim": 8,
    "query_pre_attn_scalar": 5,
    "sliding_window": 4,
    "attn_logit_softcapping": 2.0,
    "final_logit_softcapping": 3.0,
}
GEMMA3 = {
    **SIZE,
    "hidden_activation": "silu",
    "attention_bias": True,
    # Read, but not applied.
    "attn_logit_softcapping": 0.5,
    "final_logit_softcapping": 3.0,
    "head_dim": 8,
    "num_hidden_layers": 3,
    "query_pre_attn_scalar": 5,
    "sliding_window": 4,
    "layer_types": ["sliding_attention", "full_attention", "full_attention"],
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
        "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1000.0},
    },
}
GEMMA3N = {
    **SIZE,
    "hidden_size": 8,
    "hidden_activation": "silu",
    "attention_bias": True,
    "final_logit_softcapping": 3.0,
    "head_dim": 6,
    "num_hidden_layers": 5,
    "intermediate_size": [12, 10, 12, 10, 14],
    "sliding_window": 4,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "full_attention"],
    "rope_parameters": GEMMA3["rope_parameters"],
    "vocab_size_per_layer_input": 50,
    "hidden_size_per_layer_input": 3,
    "altup_active_idx": 1,
    "altup_coef_clip": 0.3,
    "altup_num_inputs": 3,
    "num_kv_shared_layers": 2,
    "laurel_rank": 5,
    "activation_sparsity_pattern": [0.6, 0.0, 0.3, 0.0, 0.8],
}
QWEN = {
    **LLAMA,
    "use_sliding_window": True,
    "sliding_window": 4,
    "max_window_layers": 1,
    **THETA,
}
GRANITE = {
    **LLAMA,
    **THETA,
    "hidden_size": 12,
    "head_dim": 4,
    "intermediate_size": 10,
    "embedding_multiplier": 5.0,
    "attention_multiplier": 0.2,
    "residual_multiplier": 0.7,
    "logits_scaling": 3.0,
}
MIXTRAL = {
    **LLAMA,
    **THETA,
    "head_dim": 8,
    "num_local_experts": 4,
    "num_experts_per_tok": 3,
    "sliding_window": 4,
}
RWKV = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "intermediate_size": 20,
    "context_length": 32,
    "rescale_every": 0,
    **SPECIAL,
}
NEOX = {
    **SIZE,
    "hidden_act": "silu",
    "rope_parameters": {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.67},
}
OPT = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "ffn_dim": 20,
    "max_position_embeddings": 24,
    "activation_function": "silu",
    **SPECIAL,
}
FALCON = {
    "vocab_size": VOCABULARY,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "ffn_hidden_size": 20,
    "activation": "silu",
    "bias": True,
    "max_position_embeddings": 32,
    **THETA,
    **SPECIAL,
}
SMOLLM3 = {
    **LLAMA,
    **THETA,
    **UNTIED,
    "attention_bias": True,
    "mlp_bias": True,
    "no_rope_layers": [0, 1],
    "use_sliding_window": True,
    "sliding_window": 4,
    "layer_types": ["full_attention", "sliding_attention"],
}
QWEN_MOE = {
    **LLAMA,
    **THETA,
    **TIED,
    "num_hidden_layers": 3,
    "use_sliding_window": True,
    "sliding_window": 4,
    "num_experts": 4,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 12,
}
MAMBA2 = {
    "vocab_size": VOCABULARY,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "expand": 3,
    "num_heads": 6,
    "head_dim": 4,
    "n_groups": 3,
    "state_size": 5,
    "conv_kernel": 3,
    "use_bias": True,
    "hidden_act": "gelu",
    "chunk_size": 4,
    **SPECIAL,
}
QWEN_HYBRID = {
    **LLAMA,
    "hidden_size": 16,
    "head_dim": 8,
    "attention_bias": True,
    "rope_parameters": {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5},
    # The last is the only one of classifiers: transformers cannot run a model of recurrences alone.
    "layer_types": ["linear_attention", "full_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 6,
    "linear_key_head_dim": 5,
    "linear_value_head_dim": 3,
    "linear_conv_kernel_dim": 3,
}
GPT_OSS = {
    **SIZE,
    "head_dim": 8,
    "layer_types": ["full_attention", "sliding_attention"],
    "sliding_window": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 3,
    "swiglu_alpha": 1.1,
    "swiglu_limit": 0.3,
}
DEEPSEEK = {
    **LLAMA,
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_key_value_heads": 4,
    "attention_bias": True,
    "q_lora_rank": 6,
    "kv_lora_rank": 10,
    "qk_nope_head_dim": 6,
    "qk_rope_head_dim": 4,
    "v_head_dim": 5,
    "n_routed_experts": 8,
    "n_group": 4,
    "topk_group": 2,
    "num_experts_per_tok": 3,
    "n_shared_experts": 2,
    "moe_intermediate_size": 4,
    "first_k_dense_replace": 1,
    "routed_scaling_factor": 1.5,
}
KIMI_LINEAR = {
    **LLAMA,
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_hidden_layers": 3,
    "num_key_value_heads": 4,
    "attention_bias": True,
    "q_lora_rank": 6,
    "kv_lora_rank": 10,
    "qk_nope_head_dim": 6,
    "qk_rope_head_dim": 4,
    "v_head_dim": 5,
    "num_experts": 6,
    "n_group": 3,
    "topk_group": 2,
    "num_experts_per_tok": 3,
    "n_shared_experts": 2,
    "moe_intermediate_size": 4,
    "norm_topk_prob": False,
    "routed_scaling_factor": 1.5,
    "linear_head_dim": 5,
    "linear_num_heads": 3,
    "linear_conv_kernel_dim": 3,
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    "mlp_layer_types": ["sparse", "dense", "sparse"],
}
ROPES = {
    "llama": {
        "rope_type": "llama3",
        "rope_theta": 100.0,
        "factor": 4.0,
        "low_freq_factor": 1.5,
        "high_freq_factor": 3.0,
        "original_max_position_embeddings": 16,
    },
    "gpt_oss": {
        "rope_type": "yarn",
        "rope_theta": 100.0,
        "factor": 4.0,
        "original_max_position_embeddings": 8,
        "beta_fast": 0.6,
        "beta_slow": 0.1,
        "truncate": False,
    },
    "llama_linear": {"rope_type": "linear", "rope_theta": 100.0, "factor": 2.0},
    "llama_dynamic": {"rope_type": "dynamic", "rope_theta": 100.0, "factor": 2.0},
    "llama_yarn": {
        "rope_type": "yarn",
        "rope_theta": 100.0,
        "factor": 4.0,
        "original_max_position_embeddings": 8,
        "beta_fast": 0.6,
        "beta_slow": 0.1,
        "mscale": 2.0,
        "mscale_all_dim": 0.5,
        "truncate": False,
    },
    "llama_longrope": {
        "rope_type": "longrope",
        "rope_theta": 100.0,
        "short_factor": [1.5, 2.5, 1.25],
        "long_factor": [3.0, 6.0, 2.0],
        "factor": 3.0,
        "original_max_position_embeddings": 16,
    },
    "phi3": {
        "rope_type": "longrope",
        "rope_theta": 100.0,
        "partial_rotary_factor": 0.67,
        "short_factor": [1.5, 2.5],
        "long_factor": [3.0, 6.0],
        "attention_factor": 1.3,
    },
    "qwen2": {
        "rope_type": "yarn",
        "rope_theta": 100.0,
        "factor": 4.0,
        "original_max_position_embeddings": 8,
        "attention_factor": 1.7,
    },
}
ALL = ("SequenceClassification", "TokenClassification", "QuestionAnswering")
# Of each folder: its class's name before the head, its config, and the heads.
FAMILIES = {
    "gpt2": ("GPT2", "GPT2Config", GPT2, ("LMHeadModel", "Model", *ALL)),
    "gpt2_scaled": (
        "GPT2",
        "GPT2Config",
        {**GPT2, **UNTIED, "scale_attn_by_inverse_layer_idx": True, "scale_attn_weights": False},
        ("LMHeadModel",),
    ),
    "llama": ("Llama", "LlamaConfig", {**LLAMA, "rope_parameters": ROPES["llama"]}, ("CausalLM", *ALL)),
    "llama_linear": (
        "Llama",
        "LlamaConfig",
        {**LLAMA, "rope_parameters": ROPES["llama_linear"], "mlp_bias": True},
        ("CausalLM",),
    ),
    "llama_dynamic": (
        "Llama",
        "LlamaConfig",
        {**LLAMA, "rope_parameters": ROPES["llama_dynamic"], "head_dim": 8},
        ("CausalLM",),
    ),
    "llama_longrope": (
        "Llama",
        "LlamaConfig",
        {**LLAMA, **TIED, "rope_parameters": ROPES["llama_longrope"]},
        ("CausalLM",),
    ),
    "llama_longrope_long": (
        "Llama",
        "LlamaConfig",
        {**LLAMA, "rope_parameters": {**ROPES["llama_longrope"], "original_max_position_embeddings": 8}},
        ("TokenClassification",),
    ),
    "llama_yarn": (
        "Llama",
        "LlamaConfig",
        {**LLAMA, **TIED, "rope_parameters": ROPES["llama_yarn"], "attention_bias": True, "head_dim": 8},
        ("CausalLM",),
    ),
    "mistral": ("Mistral", "MistralConfig", {**LLAMA, **THETA, "sliding_window": 4, "head_dim": 8}, ("CausalLM", *ALL)),
    "mistral_tied": ("Mistral", "MistralConfig", {**LLAMA, **THETA, **TIED, "sliding_window": None}, ("CausalLM",)),
    "qwen2": (
        "Qwen2",
        "Qwen2Config",
        {**QWEN, "rope_parameters": ROPES["qwen2"], "layer_types": GEMMA3["layer_types"][:2]},
        ("CausalLM", *ALL),
    ),
    "qwen2_tied": ("Qwen2", "Qwen2Config", {**QWEN, **TIED, "use_sliding_window": False}, ("CausalLM",)),
    "qwen3": ("Qwen3", "Qwen3Config", {**QWEN, "head_dim": 8, "attention_bias": True}, ("CausalLM", *ALL)),
    "qwen3_tied": ("Qwen3", "Qwen3Config", {**QWEN, **TIED, "head_dim": 8}, ("CausalLM",)),
    "gemma": ("Gemma", "GemmaConfig", GEMMA, ("CausalLM", *ALL[:2])),
    "gemma_untied": ("Gemma", "GemmaConfig", {**GEMMA, **UNTIED, "attention_bias": False}, ("CausalLM",)),
    "gemma2": ("Gemma2", "Gemma2Config", GEMMA2, ("CausalLM", *ALL[:2])),
    "gemma2_untied": ("Gemma2", "Gemma2Config", {**GEMMA2, **UNTIED, "final_logit_softcapping": None}, ("CausalLM",)),
    "gemma3": ("Gemma3", "Gemma3TextConfig", GEMMA3, ("CausalLM", *ALL[:1])),
    "gemma3_untied": ("Gemma3", "Gemma3TextConfig", {**GEMMA3, **UNTIED, "attention_bias": False}, ("CausalLM",)),
    "granite": ("Granite", "GraniteConfig", {**GRANITE, "attention_bias": True, "mlp_bias": True}, ("CausalLM",)),
    "granite_tied": ("Granite", "GraniteConfig", {**GRANITE, **TIED}, ("CausalLM",)),
    "bloom": ("Bloom", "BloomConfig", BLOOM, ("CausalLM", *ALL)),
    "bloom_untied": (
        "Bloom",
        "BloomConfig",
        {**BLOOM, **UNTIED, "apply_residual_connection_post_layernorm": True},
        ("CausalLM",),
    ),
    "mixtral": ("Mixtral", "MixtralConfig", MIXTRAL, ("CausalLM", *ALL)),
    "mixtral_tied": ("Mixtral", "MixtralConfig", {**MIXTRAL, **TIED, "sliding_window": None}, ("CausalLM",)),
    "falcon": ("Falcon", "FalconConfig", FALCON, ("CausalLM", *ALL[:1])),
    "falcon_grouped": (
        "Falcon",
        "FalconConfig",
        {**FALCON, **UNTIED, "new_decoder_architecture": True, "num_kv_heads": 2, "bias": False},
        ("CausalLM",),
    ),
    "falcon_sequential": (
        "Falcon",
        "FalconConfig",
        {**FALCON, "alibi": True, "parallel_attn": False, "multi_query": False},
        ("CausalLM",),
    ),
    "gpt_oss": (
        "GptOss",
        "GptOssConfig",
        {**GPT_OSS, "rope_parameters": ROPES["gpt_oss"]},
        ("CausalLM", *ALL[:2]),
    ),
    "gpt_neox": ("GPTNeoX", "GPTNeoXConfig", NEOX, ("CausalLM", *ALL[:1])),
    "gpt_neox_sequential": (
        "GPTNeoX",
        "GPTNeoXConfig",
        {**NEOX, **TIED, "use_parallel_residual": False, "attention_bias": False},
        ("CausalLM",),
    ),
    "llama_dynamic_long": (
        "Llama",
        "LlamaConfig",
        {**LLAMA, "rope_parameters": ROPES["llama_dynamic"], "max_position_embeddings": 8},
        ("TokenClassification",),
    ),
    "olmo2": ("Olmo2", "Olmo2Config", {**LLAMA, **THETA, **TIED, "attention_bias": True}, ("CausalLM", *ALL[:1])),
    "opt": ("OPT", "OPTConfig", {**OPT, **UNTIED, "enable_bias": False}, ("CausalLM", *ALL[:1])),
    "opt_post": ("OPT", "OPTConfig", {**OPT, "do_layer_norm_before": False}, ("CausalLM",)),
    "phi3": (
        "Phi3",
        "Phi3Config",
        {
            **LLAMA,
            **TIED,
            "rope_parameters": ROPES["phi3"],
            "original_max_position_embeddings": 24,
            "sliding_window": 4,
        },
        ("CausalLM",),
    ),
    "phi3_long": (
        "Phi3",
        "Phi3Config",
        {**LLAMA, "rope_parameters": ROPES["phi3"], "original_max_position_embeddings": 8},
        ALL[:1],
    ),
    "qwen2_moe": (
        "Qwen2Moe",
        "Qwen2MoeConfig",
        {
            **QWEN_MOE,
            "qkv_bias": False,
            "mlp_only_layers": [0],
            "shared_expert_intermediate_size": 16,
            "layer_types": ["full_attention", "full_attention", "sliding_attention"],
        },
        ("CausalLM", *ALL[:1]),
    ),
    "qwen3_moe": (
        "Qwen3Moe",
        "Qwen3MoeConfig",
        {**QWEN_MOE, "decoder_sparse_step": 2, "head_dim": 8, "attention_bias": True, "norm_topk_prob": True},
        ("CausalLM", *ALL[:1]),
    ),
    "qwen3_next": (
        "Qwen3Next",
        "Qwen3NextConfig",
        {
            **QWEN_HYBRID,
            "num_experts": 4,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 12,
            "shared_expert_intermediate_size": 16,
            "mlp_only_layers": [0],
            "norm_topk_prob": False,
        },
        ("CausalLM", *ALL[:1]),
    ),
    "qwen3_5_text": ("Qwen3_5", "Qwen3_5TextConfig", {**QWEN_HYBRID, **TIED}, ("CausalLM", *ALL[:1])),
    "mamba2": ("Mamba2", "Mamba2Config", MAMBA2, ("CausalLM",)),
    "mamba2_tied": (
        "Mamba2",
        "Mamba2Config",
        {**MAMBA2, **TIED, "use_bias": False, "use_conv_bias": False},
        ("CausalLM",),
    ),
    "deepseek_v2": (
        "DeepseekV2",
        "DeepseekV2Config",
        {**DEEPSEEK, "rope_parameters": ROPES["llama_yarn"], "topk_method": "group_limited_greedy"},
        ("CausalLM", *ALL[:1]),
    ),
    "deepseek_v3": (
        "DeepseekV3",
        "DeepseekV3Config",
        {**DEEPSEEK, "rope_parameters": ROPES["llama_yarn"]},
        ("CausalLM", *ALL[:2]),
    ),
    "deepseek_v3_direct": (
        "DeepseekV3",
        "DeepseekV3Config",
        {**DEEPSEEK, **THETA, **TIED, "q_lora_rank": None, "rope_interleave": False, "norm_topk_prob": False},
        ("CausalLM",),
    ),
    "kimi_k2": ("DeepseekV3", "DeepseekV3Config", {**DEEPSEEK, **THETA, "n_group": 1, "topk_group": 1}, ("CausalLM",)),
    "gemma3n": ("Gemma3n", "Gemma3nTextConfig", GEMMA3N, ("CausalLM",)),
    "kimi_linear": ("KimiLinear", "KimiLinearConfig", KIMI_LINEAR, ("CausalLM",)),
    "diffllama": (
        "DiffLlama",
        "DiffLlamaConfig",
        {**LLAMA, **THETA, **TIED, "hidden_size": 12, "attention_bias": True, "head_dim": 4},
        ("CausalLM", *ALL),
    ),
    "minimax": (
        "MiniMax",
        "MiniMaxConfig",
        {
            **MIXTRAL,
            "hidden_size": 16,
            "intermediate_size": 8,
            "num_hidden_layers": 3,
            "layer_types": ["linear_attention", "full_attention", "linear_attention"],
            "block_size": 4,
            **{f"{part}_alpha_factor": 1.5 for part in ("mlp", "linear_attn", "full_attn")},
            **{f"{part}_beta_factor": 0.75 for part in ("mlp", "linear_attn", "full_attn")},
        },
        ("CausalLM", *ALL[:1]),
    ),
    "smollm3": ("SmolLM3", "SmolLM3Config", SMOLLM3, ("CausalLM", *ALL[:1])),
    "rwkv": ("Rwkv", "RwkvConfig", RWKV, ("CausalLM",)),
    "rwkv_tied": ("Rwkv", "RwkvConfig", {**RWKV, **TIED}, ("CausalLM",)),
}
# Models of transformers whose texts with a cache differ from those without.
WITHOUT_CACHE = {"minimax"}
# Folders of a kind that transformers reads as another.
RENAMED = {"kimi_k2": "deepseek_v3"}
GRADIENTS = {
    "deepseek_v3-CausalLM": (
        "model.layers.0.self_attn.q_a_proj.weight",
        "model.layers.1.self_attn.q_a_layernorm.weight",
        "model.layers.1.self_attn.kv_a_proj_with_mqa.weight",
        "model.layers.0.self_attn.kv_b_proj.weight",
        "model.layers.1.mlp.gate.weight",
    ),
    "gpt2-LMHeadModel": (
        "transformer.wte.weight",
        "transformer.wpe.weight",
        "transformer.h.0.attn.c_attn.weight",
        "transformer.h.0.attn.c_attn.bias",
        "transformer.h.1.attn.c_proj.weight",
        "transformer.h.1.mlp.c_fc.weight",
        "transformer.h.0.ln_1.weight",
        "transformer.ln_f.bias",
    ),
    "gpt_oss-CausalLM": (
        "model.layers.0.self_attn.sinks",
        "model.layers.1.self_attn.sinks",
        "model.layers.0.self_attn.k_proj.weight",
        "model.layers.0.mlp.router.weight",
        "model.layers.0.mlp.router.bias",
        "model.layers.0.mlp.experts.gate_up_proj",
        "model.layers.1.mlp.experts.gate_up_proj_bias",
        "model.layers.1.mlp.experts.down_proj_bias",
    ),
    "gemma3n-CausalLM": (
        "model.layers.0.altup.prediction_coefs.weight",
        "model.layers.4.altup.modality_router.weight",
        "model.layers.2.self_attn.k_proj.weight",
        "model.layers.1.self_attn.v_proj.weight",
        "model.layers.0.laurel.linear_left.weight",
        "model.layers.3.per_layer_input_gate.weight",
        "model.per_layer_model_projection.weight",
        "model.altup_projections.0.weight",
        "model.altup_unembed_projections.1.weight",
    ),
    "kimi_linear-CausalLM": (
        "model.layers.0.self_attn.q_proj.weight",
        "model.layers.0.self_attn.b_proj.weight",
        "model.layers.2.self_attn.g_a_proj.weight",
        "model.layers.1.self_attn.q_a_proj.weight",
    ),
    "qwen3_next-CausalLM": (
        "model.layers.0.linear_attn.in_proj_ba.weight",
        "model.layers.0.linear_attn.conv1d.weight",
        "model.layers.0.linear_attn.A_log",
        "model.layers.0.linear_attn.dt_bias",
        "model.layers.0.linear_attn.norm.weight",
        "model.layers.1.self_attn.q_norm.weight",
    ),
}
OUTPUTS = {"Model": {"tokens": "last_hidden_state"}, "QuestionAnswering": ("start_logits", "end_logits")}


def main(names):
    for name, (cls, config_cls, settings, heads) in FAMILIES.items():
        if not names or name in names:
            for head in heads:
                make(f"{name}-{head}", cls, config_cls, settings, head)


def make(name, cls, config_cls, settings, head):
    generates = head in ("CausalLM", "LMHeadModel")
    settings = settings if generates else of_one_layer(settings)
    labels = {} if generates or head == "Model" else {"num_labels": 2 if head == "QuestionAnswering" else 3}
    config = getattr(transformers, config_cls)(**settings, **labels)
    model, more = speaking(head_class(cls, head), config) if generates else (build(head_class(cls, head), config), {})
    token_ids, mask = ragged_tokens(VOCABULARY)
    found = run(model, input_ids=token_ids, attention_mask=mask)
    wanted = OUTPUTS.get(head, ("logits",))
    wanted = wanted if isinstance(wanted, dict) else {each: each for each in wanted}
    outputs = {ours: found[theirs].numpy() for ours, theirs in wanted.items()}
    if name in GRADIENTS:
        inputs = {"input_ids": token_ids, "attention_mask": mask}
        more |= gradients(model, GRADIENTS[name], inputs, mask[..., None])
    write(name, model, {"token_ids": token_ids, "padding_mask": mask}, outputs, **more)
    kind = name.partition("-")[0]
    if kind in RENAMED:
        file = HERE / name / "config.json"
        file.write_text(file.read_text().replace(f'"model_type": "{RENAMED[kind]}"', f'"model_type": "{kind}"'))


def of_one_layer(settings):
    """The smallest model: what the blocks are is seen in those that generate."""
    changes = {name: 1 for name in ("num_hidden_layers", "n_layer") if name in settings}
    if "layer_types" in settings:
        changes["layer_types"] = settings["layer_types"][-1:]
        kind = changes["layer_types"][0]
        if kind in settings["rope_parameters"]:
            changes["rope_parameters"] = {kind: settings["rope_parameters"][kind]}
    return settings | changes


def head_class(cls, head):
    for name in (f"{cls}For{head}", f"{cls}TextFor{head}", f"{cls}{head}"):
        if hasattr(transformers, name):
            return getattr(transformers, name)
    raise ValueError(f"{cls} has no {head}")


def speaking(cls, config):
    """A model whose greedy texts do not end, and these."""
    for seed in range(20):
        model = build(cls, config, seed)
        found = continuations(model)
        if END not in found["generated"]:
            return model, found
    raise AssertionError(f"No weights let {cls.__name__} speak.")


def continuations(model):
    """Greedy texts, each prompt by itself."""
    texts = []
    for prompt in PROMPTS:
        row = torch.tensor([prompt])
        options = {"do_sample": False, "max_new_tokens": NEW, "eos_token_id": None, "pad_token_id": 0}
        options["use_cache"] = model.config.model_type not in WITHOUT_CACHE
        text = model.generate(row, attention_mask=torch.ones_like(row), **options)
        texts.append(text[0, len(prompt) :].tolist())
    width = max(map(len, PROMPTS))
    prompts = [[*prompt, *[-1] * (width - len(prompt))] for prompt in PROMPTS]
    return {"prompt": np.array(prompts, "int32"), "generated": np.array(texts, "int32")}


if __name__ == "__main__":
    main(sys.argv[1:])
