"""Makes the folders longformer-*: python tests/data/checkpoints/make_longformer.py (transformers 5.23, torch 2.13)."""

import transformers
from encoders import LOGITS, POOLED, SPAN, make

CONFIG = {
    "vocab_size": 60,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 26,
    "type_vocab_size": 1,
    "attention_window": [4, 6],
    "hidden_act": "silu",
    # Positions start after it.
    "pad_token_id": 2,
}
OUTPUTS = {
    "Model": POOLED,
    "ForMaskedLM": LOGITS,
    "ForSequenceClassification": LOGITS,
    "ForMultipleChoice": LOGITS,
    "ForTokenClassification": LOGITS,
    "ForQuestionAnswering": SPAN,
}


def main():
    for ending, outputs in OUTPUTS.items():
        labels = 2 if ending == "ForQuestionAnswering" else 3
        config = transformers.LongformerConfig(**CONFIG)
        name = f"longformer-{ending.removeprefix('For')}"
        options = {"labels": labels, "lengths": (22, 13, 1), "left": ending == "ForTokenClassification"}
        make(name, f"Longformer{ending}", config, outputs, global_tokens=True, **options)


if __name__ == "__main__":
    main()
