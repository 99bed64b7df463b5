"""Makes the folders distilbert-*: python tests/data/checkpoints/make_distilbert.py (transformers 5.23, torch 2.13)."""

import transformers
from encoders import LOGITS, SPAN, TOKENS, make

CONFIG = {
    "vocab_size": 60,
    "dim": 16,
    "n_layers": 2,
    "n_heads": 4,
    "hidden_dim": 24,
    "max_position_embeddings": 12,
    "activation": "silu",
    "sinusoidal_pos_embds": True,
}
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
        config = transformers.DistilBertConfig(**CONFIG)
        make(f"distilbert-{ending.removeprefix('For')}", f"DistilBert{ending}", config, outputs, labels=labels)


if __name__ == "__main__":
    main()
