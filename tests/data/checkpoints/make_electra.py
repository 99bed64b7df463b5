"""Makes the folders electra-*: python tests/data/checkpoints/make_electra.py (transformers 5.23, torch 2.13)."""

import transformers
from encoders import LOGITS, SPAN, TOKENS, make

CONFIG = {
    "vocab_size": 60,
    "embedding_size": 12,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 12,
    "type_vocab_size": 3,
    "hidden_act": "silu",
    "summary_activation": "tanh",
}
OUTPUTS = {
    "Model": TOKENS,
    "ForPreTraining": LOGITS,
    "ForMaskedLM": LOGITS,
    "ForSequenceClassification": LOGITS,
    "ForMultipleChoice": LOGITS,
    "ForTokenClassification": LOGITS,
    "ForQuestionAnswering": SPAN,
}


def main():
    for ending, outputs in OUTPUTS.items():
        labels = 2 if ending == "ForQuestionAnswering" else 3
        # As in base: embeddings of the width of the blocks, without a projection.
        same_width = {"embedding_size": 16} if ending == "ForTokenClassification" else {}
        config = transformers.ElectraConfig(**{**CONFIG, **same_width})
        name = f"electra-{ending.removeprefix('For')}"
        make(name, f"Electra{ending}", config, outputs, segments=True, labels=labels)


if __name__ == "__main__":
    main()
