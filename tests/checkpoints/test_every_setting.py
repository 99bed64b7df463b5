"""A setting that is not read fails: with transformers' default in its place, outputs are no longer those of transformers.

Here are the settings that no shape of a tensor confirms. Every fixture has them away from their defaults.
"""

import json
import pathlib
import shutil

import pytest

from checkpoint_cases import Expected, difference, predicted
from keras_transformer import checkpoints

pytestmark = pytest.mark.exhaustive

DATA = pathlib.Path(__file__).parents[1] / "data" / "checkpoints"
ENCODER = {"hidden_act": "gelu", "layer_norm_eps": 1e-12}
ENCODER_DECODER = {"activation_function": "gelu", "encoder_attention_heads": 4, "decoder_attention_heads": 2}
LLAMA = {"hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_parameters/rope_theta": 1e4}
IMAGES = {"hidden_act": "gelu", "layer_norm_eps": 1e-12, "num_attention_heads": 4}
GEMMA = {
    "hidden_activation": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 8,
    "rms_norm_eps": 1e-6,
    "sliding_window": 9,
}
SPEECH = {
    "do_stable_layer_norm": False,
    "feat_extract_activation": "gelu",
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-5,
    "num_attention_heads": 4,
    "num_conv_pos_embedding_groups": 2,
}
SETTINGS = {
    "albert-MaskedLM": {**ENCODER, "hidden_act": "gelu_new", "num_attention_heads": 2},
    "bart-ConditionalGeneration": {**ENCODER_DECODER, "scale_embedding": False},
    "bert-MaskedLM": {**ENCODER, "num_attention_heads": 4},
    "bigbird-MaskedLM": {**ENCODER, "hidden_act": "gelu_new"},
    "bigbird_long-Model": {"attention_type": "original_full", "block_size": 3, "num_random_blocks": 3},
    "bloom-CausalLM": {"layer_norm_epsilon": 1e-5, "n_head": 4},
    "bloom_untied-CausalLM": {"apply_residual_connection_post_layernorm": False, "tie_word_embeddings": True},
    "camembert-Model": {**ENCODER, "pad_token_id": 1},
    "clip-Model": {
        "text_config/hidden_act": "quick_gelu",
        "text_config/layer_norm_eps": 1e-5,
        "text_config/eos_token_id": 49407,
        "vision_config/hidden_act": "quick_gelu",
        "vision_config/layer_norm_eps": 1e-5,
        "vision_config/num_attention_heads": 4,
    },
    "clip_text_model-Model": {"hidden_act": "quick_gelu", "layer_norm_eps": 1e-5, "eos_token_id": 49407},
    "clip_vision_model-Model": {"hidden_act": "quick_gelu", "layer_norm_eps": 1e-5},
    "deberta_v2-Model": {
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-7,
        "max_relative_positions": -1,
        "norm_rel_ebd": "none",
        "num_attention_heads": 2,
        "share_att_key": False,
        "type_vocab_size": 0,
    },
    "deberta_v2-MaskedLM": {
        "conv_act": "tanh",
        "conv_groups": 1,
        "legacy": False,
        "max_relative_positions": -1,
        "pos_att_type": ["c2p"],
        "position_biased_input": False,
        "relative_attention": False,
    },
    "deberta_v2-MultipleChoice": {"pooler_hidden_act": "gelu", "pos_att_type": ["c2p", "p2c"], "position_buckets": 4},
    "deberta_v2_published-MaskedLM": {"conv_act": "gelu", "embedding_size": 12},
    "deepseek_v2-CausalLM": {
        **LLAMA,
        "num_experts_per_tok": 2,
        "routed_scaling_factor": 1.0,
        "rope_parameters/mscale_all_dim": None,
        "topk_group": 1,
        "topk_method": "greedy",
    },
    "deepseek_v3-CausalLM": {
        **LLAMA,
        "n_group": 2,
        "norm_topk_prob": False,
        "num_experts_per_tok": 2,
        "rope_interleave": False,
        "rope_parameters/factor": 1.0,
        "rope_parameters/mscale": None,
        "rope_parameters/mscale_all_dim": None,
        "routed_scaling_factor": 2.5,
        "topk_group": 4,
    },
    "deepseek_v3_direct-CausalLM": {"norm_topk_prob": True, "rope_interleave": True, "tie_word_embeddings": False},
    "deit-Model": {**IMAGES, "pooler_act": "tanh", "qkv_bias": True},
    "diffllama-CausalLM": {**LLAMA, "rms_norm_eps": 1e-5, "tie_word_embeddings": False},
    "dinov2-Model": {**IMAGES, "layer_norm_eps": 1e-6},
    "dinov2_with_registers-Model": {**IMAGES, "layer_norm_eps": 1e-6},
    "dinov3_convnext-Model": {"hidden_act": "gelu", "layer_norm_eps": 1e-6},
    "dinov3_vit-Model": {**IMAGES, "layer_norm_eps": 1e-5, "num_attention_heads": 6, "rope_theta": 100.0},
    "dinov3_vit_gated-Model": {"use_gated_mlp": False, "hidden_act": "gelu"},
    "distilbert-MaskedLM": {"activation": "gelu", "n_heads": 2},
    "electra-MultipleChoice": {**ENCODER, "num_attention_heads": 4, "summary_activation": "gelu"},
    "electra-PreTraining": {"hidden_act": "gelu"},
    "eurobert-MaskedLM": {**LLAMA, "attention_bias": False, "head_dim": None, "mlp_bias": False, "rms_norm_eps": 1e-5},
    "eurobert_tied-MaskedLM": {"tie_word_embeddings": False},
    "eurobert_bos-SequenceClassification": {"classifier_pooling": "late"},
    "eurobert_mean-SequenceClassification": {"classifier_pooling": "bos"},
    "falcon-CausalLM": {
        "activation": "gelu",
        "layer_norm_epsilon": 1e-5,
        "parallel_attn": False,
        "rope_parameters/rope_theta": 1e4,
    },
    "falcon_grouped-CausalLM": {"num_ln_in_parallel_attn": 1, "num_kv_heads": 4, "tie_word_embeddings": True},
    "falcon_sequential-CausalLM": {"alibi": False, "multi_query": True, "parallel_attn": True},
    "gemma-CausalLM": {**LLAMA, "hidden_act": "gelu_pytorch_tanh"},
    "gemma_untied-CausalLM": {"tie_word_embeddings": True},
    "gemma2-CausalLM": {
        **GEMMA,
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
        "layer_types": None,
        "rope_parameters/rope_theta": 1e4,
    },
    "gemma2_untied-CausalLM": {"tie_word_embeddings": True},
    "gemma3-CausalLM": {
        **GEMMA,
        "final_logit_softcapping": None,
        "layer_types": None,
        "rope_parameters/full_attention/factor": 1.0,
        "rope_parameters/full_attention/rope_theta": 1e6,
        "rope_parameters/full_attention/rope_type": "default",
        "rope_parameters/sliding_attention/rope_theta": 1e4,
    },
    "gemma3n-CausalLM": {
        "activation_sparsity_pattern": [0.6, 0.0, 0.3, 0.2, 0.8],
        "altup_active_idx": 0,
        "altup_correct_scale": False,
        "attention_bias": False,
        "final_logit_softcapping": None,
        "hidden_activation": "gelu_pytorch_tanh",
        "layer_types": None,
        "num_kv_shared_layers": 1,
        "rms_norm_eps": 1e-6,
        "rope_parameters/full_attention/factor": 1.0,
        "rope_parameters/full_attention/rope_theta": 1e6,
        "rope_parameters/sliding_attention/rope_theta": 10000.0,
        "sliding_window": 5,
        "tie_word_embeddings": False,
        "vocab_size_per_layer_input": 60,
    },
    "gemma3_untied-CausalLM": {"tie_word_embeddings": True},
    "hubert-CTC": {"feat_extract_norm": "layer", "feat_proj_layer_norm": True, "num_attention_heads": 2},
    "hubert-Model": SPEECH,
    "gpt2-LMHeadModel": {"activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "n_head": 4},
    "gpt2_scaled-LMHeadModel": {
        "scale_attn_by_inverse_layer_idx": False,
        "scale_attn_weights": True,
        "tie_word_embeddings": True,
    },
    "gpt_neox-CausalLM": {
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-5,
        "num_attention_heads": 2,
        "rope_parameters/partial_rotary_factor": 0.25,
        "rope_parameters/rope_theta": 1e4,
        "use_parallel_residual": False,
    },
    "gpt_neox_sequential-CausalLM": {
        "attention_bias": True,
        "tie_word_embeddings": False,
        "use_parallel_residual": True,
    },
    "gpt_oss-CausalLM": {
        "layer_types": None,
        "num_experts_per_tok": 4,
        "rms_norm_eps": 1e-5,
        "rope_parameters/beta_fast": None,
        "rope_parameters/beta_slow": None,
        "rope_parameters/factor": 1.0,
        "rope_parameters/original_max_position_embeddings": 32,
        "rope_parameters/rope_theta": 150000.0,
        "rope_parameters/rope_type": "default",
        "rope_parameters/truncate": None,
        "sliding_window": 128,
        "swiglu_alpha": 1.702,
        "swiglu_limit": 7.0,
    },
    "gpt_oss_mxfp4-CausalLM": {
        "attention_bias": True,
        "quantization_config": None,
        "rope_parameters/truncate": False,
        "tie_word_embeddings": False,
    },
    "granite-CausalLM": {
        **LLAMA,
        "attention_bias": False,
        "attention_multiplier": 1.0,
        "embedding_multiplier": 1.0,
        "head_dim": None,
        "logits_scaling": 1.0,
        "mlp_bias": False,
        "residual_multiplier": 1.0,
    },
    "granite_tied-CausalLM": {"tie_word_embeddings": False},
    "gte-MaskedLM": {
        **ENCODER,
        "num_attention_heads": 4,
        "rope_parameters/rope_theta": 160000.0,
        "type_vocab_size": 1,
    },
    "kimi_k2-CausalLM": {**LLAMA, "num_experts_per_tok": 8, "routed_scaling_factor": 2.5},
    "kimi_linear-CausalLM": {
        "attention_bias": False,
        "hidden_act": "silu",
        "layer_types": None,
        "linear_conv_kernel_dim": 4,
        "mlp_layer_types": None,
        "moe_renormalize": True,
        "num_expert_group": 2,
        "num_experts_per_token": 2,
        "rms_norm_eps": 1e-5,
        "routed_scaling_factor": 2.446,
        "tie_word_embeddings": True,
        "topk_group": 3,
    },
    "kosmos2-ConditionalGeneration": {
        "text_config/activation_function": "gelu",
        "text_config/layer_norm_eps": 1e-5,
        "text_config/scale_embedding": True,
        "vision_config/hidden_act": "quick_gelu",
        "vision_config/layer_norm_eps": 1e-5,
    },
    "layoutlm-MaskedLM": {**ENCODER, "num_attention_heads": 2},
    "llama-CausalLM": {
        **LLAMA,
        "rope_parameters/factor": 1.0,
        "rope_parameters/high_freq_factor": 4.0,
        "rope_parameters/low_freq_factor": 1.0,
        "rope_parameters/original_max_position_embeddings": 32,
        "rope_parameters/rope_type": "default",
    },
    "llama_dynamic-CausalLM": LLAMA,
    "llama_dynamic_long-TokenClassification": {
        "max_position_embeddings": 32,
        "rope_parameters/factor": 1.0,
        "rope_parameters/rope_type": "default",
    },
    "llama_linear-CausalLM": {**LLAMA, "mlp_bias": False, "rope_parameters/factor": 1.0},
    "llama_longrope-CausalLM": {
        **LLAMA,
        "rope_parameters/factor": 1.0,
        "rope_parameters/original_max_position_embeddings": 8,
        "rope_parameters/short_factor": [1.0, 1.0, 1.0],
    },
    "llama_longrope_long-TokenClassification": {
        "rope_parameters/long_factor": [1.0, 1.0, 1.0],
        "rope_parameters/original_max_position_embeddings": 32,
    },
    "llama_yarn-CausalLM": {
        **LLAMA,
        "attention_bias": False,
        "head_dim": None,
        "rope_parameters/beta_fast": None,
        "rope_parameters/beta_slow": None,
        "rope_parameters/factor": 1.0,
        "rope_parameters/mscale": None,
        "rope_parameters/mscale_all_dim": None,
        "rope_parameters/original_max_position_embeddings": 32,
        "rope_parameters/truncate": None,
        "tie_word_embeddings": False,
    },
    "longformer-MaskedLM": {**ENCODER, "attention_window": 512, "num_attention_heads": 4, "pad_token_id": 1},
    "mamba2-CausalLM": {
        "hidden_act": "silu",
        "layer_norm_epsilon": 1e-5,
        "n_groups": 6,
        "time_step_limit": [0.0, 0.1],
        "use_bias": False,
    },
    "mamba2_tied-CausalLM": {"tie_word_embeddings": False, "use_conv_bias": True},
    "marian-MTModel": {**ENCODER_DECODER, "scale_embedding": False},
    "mbart-ConditionalGeneration": {**ENCODER_DECODER, "scale_embedding": False},
    "minimax-CausalLM": {
        **LLAMA,
        **{f"{part}_attn_{name}_factor": 1 for part in ("linear", "full") for name in ("alpha", "beta")},
        "mlp_alpha_factor": 1,
        "mlp_beta_factor": 1,
        "layer_types": None,
        "num_experts_per_tok": 2,
        "rms_norm_eps": 1e-5,
        "rope_parameters/rope_theta": 1e6,
        "sliding_window": None,
    },
    "mistral-CausalLM": {**LLAMA, "head_dim": None, "sliding_window": 4096},
    "mistral_tied-CausalLM": {"tie_word_embeddings": False},
    "mixtral-CausalLM": {
        **LLAMA,
        "head_dim": None,
        "num_experts_per_tok": 2,
        "rms_norm_eps": 1e-5,
        "rope_parameters/rope_theta": 1e6,
        "sliding_window": None,
    },
    "mixtral_tied-CausalLM": {"tie_word_embeddings": False},
    "modernbert-TokenClassification": {
        "classifier_activation": "gelu",
        "classifier_bias": False,
        "hidden_activation": "gelu",
        "layer_types": None,
        "local_attention": 128,
        "mlp_bias": False,
        "norm_bias": False,
        "norm_eps": 1e-5,
        "rope_parameters/full_attention/rope_theta": 160000.0,
        "rope_parameters/sliding_attention/rope_theta": 10000.0,
    },
    "modernbert-SequenceClassification": {"classifier_pooling": "cls"},
    "moonshine-ConditionalGeneration": {
        "attention_bias": False,
        "decoder_hidden_act": "silu",
        "decoder_num_key_value_heads": 1,
        "encoder_hidden_act": "gelu",
        "encoder_num_attention_heads": 1,
        "rope_parameters/partial_rotary_factor": 0.9,
        "rope_parameters/rope_theta": 1e4,
    },
    "moonshine_untied-ConditionalGeneration": {"tie_word_embeddings": True},
    "parakeet_ctc-CTC": {
        "encoder_config/hidden_act": "silu",
        "encoder_config/num_attention_heads": 2,
        "encoder_config/scale_input": False,
        "encoder_config/subsampling_conv_stride": 2,
    },
    "parakeet_encoder-Model": {"hidden_act": "relu", "num_attention_heads": 2, "scale_input": True},
    "mpnet-MaskedLM": {**ENCODER, "num_attention_heads": 2},
    "mt5-ConditionalGeneration": {
        "feed_forward_proj": "gated-gelu",
        "layer_norm_epsilon": 1e-6,
        "relative_attention_max_distance": 128,
    },
    "new-MaskedLM": {**ENCODER, "pack_qkv": True, "rope_theta": 10000.0},
    "new-Model": {"num_attention_heads": 4, "rope_scaling/factor": 1.0, "rope_theta": 10000.0, "type_vocab_size": 1},
    "nomic_bert-MaskedLM": {
        "hidden_act": "silu",
        "layer_norm_eps": 1e-12,
        "num_attention_heads": 4,
        "rope_parameters/rope_theta": 1e3,
    },
    "nomic_bert-Model": {"head_dim": None},
    "olmo2-CausalLM": {**LLAMA, "attention_bias": False, "rms_norm_eps": 1e-5, "tie_word_embeddings": False},
    "opt-CausalLM": {
        "activation_function": "relu",
        "do_layer_norm_before": False,
        "enable_bias": True,
        "num_attention_heads": 4,
        "tie_word_embeddings": True,
    },
    "opt_post-CausalLM": {"do_layer_norm_before": True},
    "paligemma-ConditionalGeneration": {
        "image_token_index": 56,
        "text_config/attention_bias": False,
        "text_config/head_dim": None,
        "text_config/hidden_act": "gelu_pytorch_tanh",
        "text_config/rms_norm_eps": 1e-6,
        "text_config/rope_parameters/rope_theta": 1e4,
        "text_config/use_bidirectional_attention": False,
        "vision_config/hidden_act": "gelu_pytorch_tanh",
        "vision_config/layer_norm_eps": 1e-6,
        "vision_config/num_attention_heads": 4,
        "vision_config/vision_use_head": True,
    },
    "qwen2_5_vl-ConditionalGeneration": {
        "image_token_id": 56,
        "tie_word_embeddings": True,
        "text_config/hidden_act": "silu",
        "text_config/layer_types": ["full_attention"] * 2,
        "text_config/rms_norm_eps": 1e-6,
        "text_config/rope_parameters/mrope_section": [1, 1, 2],
        "text_config/rope_parameters/rope_theta": 1e6,
        "text_config/sliding_window": 4096,
        "text_config/use_sliding_window": False,
        "vision_config/fullatt_block_indexes": [0],
        "vision_config/hidden_act": "silu",
        "vision_config/num_heads": 1,
        "vision_config/rope_parameters/rope_theta": 1e4,
    },
    "pegasus-ConditionalGeneration": {**ENCODER_DECODER, "scale_embedding": False},
    "phi3-CausalLM": {
        **LLAMA,
        "original_max_position_embeddings": 8,
        "rms_norm_eps": 1e-5,
        "rope_parameters/attention_factor": None,
        "rope_parameters/partial_rotary_factor": 1.0,
        "rope_parameters/rope_type": "default",
        "rope_parameters/short_factor": [1.0, 1.0],
        "sliding_window": None,
        "tie_word_embeddings": False,
    },
    "phi3_long-SequenceClassification": {
        "original_max_position_embeddings": 32,
        "rope_parameters/long_factor": [1.0, 1.0],
    },
    "qwen2-CausalLM": {
        **LLAMA,
        "layer_types": None,
        "rope_parameters/attention_factor": None,
        "rope_parameters/factor": 1.0,
        "sliding_window": 4096,
        "use_sliding_window": False,
    },
    "qwen2_moe-CausalLM": {
        **LLAMA,
        "layer_types": None,
        "mlp_only_layers": [],
        "norm_topk_prob": True,
        "num_experts_per_tok": 4,
        "qkv_bias": True,
        "sliding_window": 4096,
        "tie_word_embeddings": False,
        "use_sliding_window": False,
    },
    "qwen2_tied-CausalLM": {"tie_word_embeddings": False},
    "qwen3-CausalLM": {
        **LLAMA,
        "attention_bias": False,
        "head_dim": None,
        "use_sliding_window": False,
        "sliding_window": 4096,
    },
    "qwen3_5_text-CausalLM": {
        **LLAMA,
        "attention_bias": False,
        "layer_types": None,
        "rope_parameters/partial_rotary_factor": 0.25,
        "tie_word_embeddings": False,
    },
    "qwen3_moe-CausalLM": {
        **LLAMA,
        "attention_bias": False,
        "decoder_sparse_step": 1,
        "head_dim": None,
        "norm_topk_prob": False,
        "num_experts_per_tok": 4,
        "sliding_window": 4096,
        "tie_word_embeddings": False,
        "use_sliding_window": False,
    },
    "qwen3_next-CausalLM": {
        **LLAMA,
        "attention_bias": False,
        "layer_types": None,
        "linear_num_key_heads": 6,
        "mlp_only_layers": [],
        "norm_topk_prob": True,
        "num_experts_per_tok": 4,
        "rope_parameters/partial_rotary_factor": 0.25,
    },
    "qwen3_tied-CausalLM": {"tie_word_embeddings": False},
    "reformer-MaskedLM": {"hidden_act": "relu", "layer_norm_eps": 1e-12, "local_attn_chunk_length": 64},
    "reformer-SequenceClassification": {"local_num_chunks_after": 0, "local_num_chunks_before": 1},
    "roberta-MaskedLM": {**ENCODER, "num_attention_heads": 2, "pad_token_id": 1},
    "roformer-MaskedLM": {**ENCODER, "num_attention_heads": 4},
    "roformer-TokenClassification": {"rotary_value": False},
    "rwkv-CausalLM": {"layer_norm_epsilon": 1e-5},
    "rwkv_tied-CausalLM": {"tie_word_embeddings": False},
    "rwkv7-CausalLM": {"norm_eps": 1e-5},
    "rwkv7_tied-CausalLM": {"hidden_ratio": 2.0, "tie_word_embeddings": False},
    "sentence-bert": {**ENCODER, "num_attention_heads": 4},
    "sentence-roberta": {**ENCODER, "num_attention_heads": 2, "pad_token_id": 1},
    "siglip-Model": {
        "text_config/hidden_act": "gelu_pytorch_tanh",
        "text_config/layer_norm_eps": 1e-6,
        "text_config/num_attention_heads": 4,
        "text_config/projection_size": None,
        "vision_config/hidden_act": "gelu_pytorch_tanh",
        "vision_config/layer_norm_eps": 1e-6,
        "vision_config/num_attention_heads": 4,
        "vision_config/vision_use_head": False,
    },
    "siglip2-Model": {
        "text_config/layer_norm_eps": 1e-6,
        "vision_config/hidden_act": "gelu_pytorch_tanh",
        "vision_config/layer_norm_eps": 1e-6,
        "vision_config/num_attention_heads": 4,
        "vision_config/num_patches": 16,
    },
    "siglip_vision_model_plain-Model": {"layer_norm_eps": 1e-6, "vision_use_head": True},
    "smollm3-CausalLM": {
        **LLAMA,
        "attention_bias": False,
        "layer_types": None,
        "mlp_bias": False,
        "no_rope_layers": None,
        "sliding_window": 4096,
        "tie_word_embeddings": True,
        "use_sliding_window": False,
    },
    "swin-Model": {"hidden_act": "gelu", "layer_norm_eps": 1e-5, "window_size": 7},
    "t5-ConditionalGeneration": {"layer_norm_epsilon": 1e-6, "relative_attention_max_distance": 128},
    "t5-1.1-ConditionalGeneration": {"feed_forward_proj": "relu", "scale_decoder_outputs": True},
    "t5-Model": {"feed_forward_proj": "relu"},
    "vit-Model": {**IMAGES, "pooler_act": "tanh"},
    "vit-Model-without-pooler": {"qkv_bias": True},
    "vits-Model": {
        "duration_predictor_tail_bound": 5.0,
        "hidden_act": "relu",
        "layer_norm_eps": 1e-5,
        "leaky_relu_slope": 0.1,
        "noise_scale": 0.667,
        "noise_scale_duration": 0.8,
        "resblock_dilation_sizes": [[1, 3], [1, 3, 5]],
        "upsample_rates": [3, 4],
        "wavenet_dilation_rate": 1,
    },
    "vits_plain-Model": {"hidden_act": "relu", "layer_norm_eps": 1e-5},
    "wav2vec2-CTC": SPEECH,
    "wav2vec2-Model": {"adapter_attn_dim": None},
    "wav2vec2-PreTraining": {"num_codevector_groups": 2},
    "wav2vec2_adapter-Model": {"adapter_stride": 2, "add_adapter": False},
    "wavlm-CTC": {"max_bucket_distance": 800, "num_attention_heads": 3},
    "wavlm-Model": {**SPEECH, "max_bucket_distance": 800},
    "whisper-ConditionalGeneration": ENCODER_DECODER,
    "xlm-roberta-MaskedLM": {**ENCODER, "pad_token_id": 1},
    "xlnet-Model": {"ff_activation": "gelu", "layer_norm_eps": 1e-12},
    "xlnet-MultipleChoice": {"summary_activation": "tanh"},
    "xlnet_causal-LMHeadModel": {"attn_type": "bi"},
    "detr-Model": {
        "activation_function": "relu",
        "decoder_attention_heads": 2,
        "encoder_attention_heads": 3,
        "backbone_config/downsample_in_first_stage": False,
        "backbone_config/hidden_act": "relu",
    },
    "detr-ObjectDetection": {"backbone_config/downsample_in_bottleneck": False},
    "d_fine-ObjectDetection": {
        "activation_function": "silu",
        "batch_norm_eps": 1e-5,
        "decoder_activation_function": "relu",
        "decoder_attention_heads": 2,
        "decoder_method": "discrete",
        "decoder_n_points": [3, 1, 2],
        "decoder_offset_scale": 0.5,
        "layer_norm_eps": 1e-5,
        "backbone_config/hidden_act": "relu",
    },
    "rt_detr-ObjectDetection": {
        "activation_function": "silu",
        "batch_norm_eps": 1e-5,
        "decoder_activation_function": "relu",
        "decoder_attention_heads": 2,
        "encode_proj_layers": [2, 1],
        "encoder_activation_function": "gelu",
        "encoder_attention_heads": 4,
        "layer_norm_eps": 1e-5,
        "positional_encoding_temperature": 10000,
        "backbone_config/downsample_in_bottleneck": True,
        "backbone_config/hidden_act": "relu",
    },
    "rt_detr_v2-ObjectDetection": {"decoder_method": "discrete", "decoder_offset_scale": 0.5},
    "segformer-SemanticSegmentation": {"hidden_act": "gelu", "strides": [4, 2, 1]},
    "sam-Model": {
        "vision_config/hidden_act": "gelu",
        "vision_config/layer_norm_eps": 1e-6,
        "vision_config/num_attention_heads": 4,
        "prompt_encoder_config/hidden_act": "gelu",
        "prompt_encoder_config/layer_norm_eps": 1e-6,
        "mask_decoder_config/hidden_act": "relu",
        "mask_decoder_config/layer_norm_eps": 1e-6,
        "mask_decoder_config/num_attention_heads": 2,
    },
    "yolos-Model": {**IMAGES, "qkv_bias": True},
    "yolos-ObjectDetection": {**IMAGES, "use_mid_position_embeddings": False},
}
POOLINGS = {
    "sentence-bert": {
        f"pooling_mode_{name}": False for name in ("cls_token", "max_tokens", "mean_tokens", "lasttoken")
    },
    "sentence-roberta": {"pooling_mode": "mean"},
}


def changed(source, file, name, value, tmp_path):
    """A copy of a folder with another value of one setting, "/" between it and its sections; None for no setting."""
    folder = pathlib.Path(shutil.copytree(source, tmp_path / source.name))
    config = json.loads((folder / file).read_text())
    *sections, last = name.split("/")
    settings = config
    for section in sections:
        settings = settings[section]
    assert settings[last] != value, "this is its value already"
    settings[last] = value
    if value is None and "softcap" not in last:
        del settings[last]
    (folder / file).write_text(json.dumps(config))
    return folder


def is_refused_or_differs(folder, expected):
    try:
        model = checkpoints.from_huggingface(folder, verbose=0)
    except checkpoints.CheckpointError:
        return True
    found = predicted(model, expected.inputs)
    if any(found.get(name, array).shape != array.shape for name, array in expected.outputs.items()):
        return True
    return difference(found, expected.outputs, expected.inputs)[0] > 5e-5


@pytest.mark.parametrize(
    "name, setting",
    [pytest.param(name, setting, id=f"{name}-{setting}") for name in SETTINGS for setting in SETTINGS[name]],
)
def test_a_setting_that_is_not_read_fails(name, setting, tmp_path):
    folder = changed(DATA / name, "config.json", setting, SETTINGS[name][setting], tmp_path)
    assert is_refused_or_differs(folder, Expected(DATA / name))


@pytest.mark.parametrize(
    "name, setting",
    [pytest.param(name, setting, id=f"{name}-{setting}") for name in POOLINGS for setting in POOLINGS[name]],
)
def test_a_pooling_that_is_not_read_fails(name, setting, tmp_path):
    folder = changed(DATA / name, "1_Pooling/config.json", setting, POOLINGS[name][setting], tmp_path)
    model, expected = checkpoints.from_huggingface(folder, verbose=0), Expected(DATA / name)
    wanted = next(iter(expected.outputs.values()))
    assert next(iter(predicted(model, expected.inputs).values())).shape != wanted.shape


def test_a_norm_of_sentences_that_is_not_read_fails(tmp_path):
    folder = pathlib.Path(shutil.copytree(DATA / "sentence-bert", tmp_path / "copy"))
    modules = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps(modules[:2]))
    assert is_refused_or_differs(folder, Expected(DATA / "sentence-bert"))


def test_the_windows_of_qwen_in_configs_before_version_5(tmp_path):
    folder = changed(DATA / "qwen3-CausalLM", "config.json", "layer_types", None, tmp_path)
    expected = Expected(folder)
    found = predicted(checkpoints.from_huggingface(folder, verbose=0), expected.inputs)
    assert difference(found, expected.outputs, expected.inputs)[0] <= 1e-5
    folder = changed(folder, "config.json", "max_window_layers", 28, tmp_path / "later")
    assert is_refused_or_differs(folder, expected)
