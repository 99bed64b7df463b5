"""Makes the folders mpnet-*: python tests/data/checkpoints/make_mpnet.py (transformers 5.23, torch 2.13)."""

import transformers
from encoders import LOGITS, POOLED, SPAN, make

CONFIG = {
    "vocab_size": 60,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "max_position_embeddings": 26,
    "hidden_act": "silu",
    # Positions start after 1, whichever token is padding.
    "pad_token_id": 3,
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
        name = f"mpnet-{ending.removeprefix('For')}"
        # Padded on the left, with the token behind which positions start: transformers counts all others.
        left = ending == "ForTokenClassification"
        config = transformers.MPNetConfig(**CONFIG | ({"pad_token_id": 1} if left else {}))
        # Long enough for distances that share a bucket.
        make(name, f"MPNet{ending}", config, outputs, labels=labels, lengths=(24, 14, 1), left=left)


if __name__ == "__main__":
    main()
