"""Makes the folders modernbert-*: python tests/data/checkpoints/make_modernbert.py (transformers 5.23, torch 2.13)."""

import transformers
from encoders import LOGITS, SPAN, TOKENS, make

CONFIG = {
    "vocab_size": 60,
    "hidden_size": 16,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 64,
    "local_attention": 6,
    "hidden_activation": "silu",
    "layer_types": ["sliding_attention", "full_attention", "full_attention", "sliding_attention"],
    "pad_token_id": 0,
    "bos_token_id": 1,
    "cls_token_id": 1,
    "eos_token_id": 2,
    "sep_token_id": 2,
    "rope_parameters": {
        "full_attention": {"rope_type": "default", "rope_theta": 160.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10.0},
    },
}
BIASES = {"attention_bias": True, "mlp_bias": True, "norm_bias": True, "classifier_bias": True}
OUTPUTS = {
    "Model": TOKENS,
    "ForMaskedLM": LOGITS,
    "ForSequenceClassification": LOGITS,
    "ForMultipleChoice": LOGITS,
    "ForTokenClassification": LOGITS,
    "ForQuestionAnswering": SPAN,
}


def main():
    for ending, outputs in OUTPUTS.items():
        labels = 2 if ending == "ForQuestionAnswering" else 3
        more = {
            # The pattern of configs before version 5.
            "Model": {"layer_types": None},
            "ForSequenceClassification": {"classifier_pooling": "mean"},
            "ForTokenClassification": {**BIASES, "classifier_activation": "relu"},
        }.get(ending, {})
        config = transformers.ModernBertConfig(**{**CONFIG, **more})
        name = f"modernbert-{ending.removeprefix('For')}"
        # Longer than a window.
        make(name, f"ModernBert{ending}", config, outputs, labels=labels, lengths=(23, 14, 1))


if __name__ == "__main__":
    main()
