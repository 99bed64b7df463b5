"""Makes the folders nomic_bert-*: python tests/data/checkpoints/make_nomic_bert.py (transformers 5.24, torch 2.13)."""

import transformers
from encoders import LOGITS, TOKENS, make

CONFIG = {
    "vocab_size": 60,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 20,
    "max_position_embeddings": 20,
    "type_vocab_size": 3,
    "hidden_act": "gelu",
    "head_dim": 6,
    "rope_parameters": {"rope_type": "default", "rope_theta": 100.0},
}
OUTPUTS = {
    "Model": TOKENS,
    "ForMaskedLM": LOGITS,
    "ForSequenceClassification": LOGITS,
    "ForTokenClassification": LOGITS,
}


def main():
    for ending, outputs in OUTPUTS.items():
        config = transformers.NomicBertConfig(**CONFIG)
        make(f"nomic_bert-{ending.removeprefix('For')}", f"NomicBert{ending}", config, outputs, segments=True)


if __name__ == "__main__":
    main()
