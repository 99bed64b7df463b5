"""Makes the folders albert-*: python tests/data/checkpoints/make_albert.py (transformers 5.23, torch 2.13)."""

import transformers
from encoders import LOGITS, POOLED, SPAN, make

CONFIG = {
    "vocab_size": 60,
    "embedding_size": 12,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "max_position_embeddings": 12,
    "type_vocab_size": 3,
    "hidden_act": "silu",
}
OUTPUTS = {
    "Model": POOLED,
    "ForPreTraining": {"logits": "prediction_logits", "sentence_logits": "sop_logits"},
    "ForMaskedLM": LOGITS,
    "ForSequenceClassification": LOGITS,
    "ForMultipleChoice": LOGITS,
    "ForTokenClassification": LOGITS,
    "ForQuestionAnswering": SPAN,
}


def main():
    for ending, outputs in OUTPUTS.items():
        labels = 2 if ending in ("ForQuestionAnswering", "ForPreTraining") else 3
        # Five layers in three groups, which do not divide them.
        groups = {"num_hidden_layers": 5, "num_hidden_groups": 3} if ending == "Model" else {}
        if ending == "ForTokenClassification":  # Two blocks in each of two groups, which three layers apply.
            groups = {"num_hidden_groups": 2, "inner_group_num": 2}
        config = transformers.AlbertConfig(**{**CONFIG, **groups})
        name = f"albert-{ending.removeprefix('For')}"
        make(name, f"Albert{ending}", config, outputs, segments=True, labels=labels)


if __name__ == "__main__":
    main()
