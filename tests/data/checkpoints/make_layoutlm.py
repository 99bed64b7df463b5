"""Makes the folders layoutlm-*: python tests/data/checkpoints/make_layoutlm.py (transformers 5.23, torch 2.13)."""

import transformers
from encoders import LOGITS, POOLED, SPAN, make

CONFIG = {
    "vocab_size": 60,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "max_position_embeddings": 12,
    "type_vocab_size": 3,
    "hidden_act": "silu",
    "max_2d_position_embeddings": 30,
}
OUTPUTS = {
    "Model": POOLED,
    "ForMaskedLM": LOGITS,
    "ForSequenceClassification": LOGITS,
    "ForTokenClassification": LOGITS,
    "ForQuestionAnswering": SPAN,
}


def main():
    for ending, outputs in OUTPUTS.items():
        labels = 2 if ending == "ForQuestionAnswering" else 3
        config = transformers.LayoutLMConfig(**CONFIG)
        name = f"layoutlm-{ending.removeprefix('For')}"
        make(name, f"LayoutLM{ending}", config, outputs, segments=True, boxes=True, labels=labels)


if __name__ == "__main__":
    main()
