"""Makes the folders of RoBERTa's kind: python tests/data/checkpoints/make_roberta.py (transformers 5.23, torch 2.13)."""

import transformers
from encoders import LOGITS, POOLED, SPAN, make

CONFIG = {
    "vocab_size": 60,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "max_position_embeddings": 15,
    "type_vocab_size": 1,
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
# Padded on the left.
LEFT = ("ForTokenClassification",)


def main():
    for ending, outputs in OUTPUTS.items():
        labels = 2 if ending == "ForQuestionAnswering" else 3
        config = transformers.RobertaConfig(**CONFIG)
        make(
            f"roberta-{ending.removeprefix('For')}",
            f"Roberta{ending}",
            config,
            outputs,
            labels=labels,
            left=ending in LEFT,
        )
    # With segments.
    config = transformers.CamembertConfig(
        **{**CONFIG, "pad_token_id": 3, "max_position_embeddings": 16, "type_vocab_size": 3}
    )
    make("camembert-Model", "CamembertModel", config, POOLED, segments=True)
    make("xlm-roberta-MaskedLM", "XLMRobertaForMaskedLM", transformers.XLMRobertaConfig(**CONFIG), LOGITS)


if __name__ == "__main__":
    main()
