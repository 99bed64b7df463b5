"""Makes the folders eurobert-*: python tests/data/checkpoints/make_eurobert.py (transformers 5.23, torch 2.13)."""

import transformers
from encoders import LOGITS, TOKENS, make

CONFIG = {
    "vocab_size": 40,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "intermediate_size": 10,
    "max_position_embeddings": 32,
    "hidden_act": "gelu",
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "mask_token_id": 3,
    "rope_parameters": {"rope_type": "default", "rope_theta": 100.0},
}
BIASES = {"attention_bias": True, "mlp_bias": True}
# The options and the outputs of each folder.
FOLDERS = {
    "eurobert-Model": ("Model", {}, TOKENS),
    "eurobert-MaskedLM": ("ForMaskedLM", BIASES, LOGITS),
    "eurobert_tied-MaskedLM": ("ForMaskedLM", {"tie_word_embeddings": True}, LOGITS),
    "eurobert-SequenceClassification": ("ForSequenceClassification", {"classifier_pooling": "late"}, LOGITS),
    "eurobert_bos-SequenceClassification": ("ForSequenceClassification", {"classifier_pooling": "bos"}, LOGITS),
    "eurobert_mean-SequenceClassification": ("ForSequenceClassification", {"classifier_pooling": "mean"}, LOGITS),
    "eurobert-TokenClassification": ("ForTokenClassification", {"attention_bias": True}, LOGITS),
}


def main():
    for name, (ending, options, outputs) in FOLDERS.items():
        layers = {"num_hidden_layers": 2 if "LM" in name else 1}
        config = transformers.EuroBertConfig(**CONFIG | layers | options)
        make(name, f"EuroBert{ending}", config, outputs)


if __name__ == "__main__":
    main()
