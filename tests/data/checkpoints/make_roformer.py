"""Makes the folders roformer-*: python tests/data/checkpoints/make_roformer.py (transformers 5.23, torch 2.13)."""

import torch
import transformers
from encoders import LOGITS, SPAN, TOKENS, make

CONFIG = {
    "vocab_size": 60,
    "embedding_size": 12,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 16,
    "type_vocab_size": 3,
    "hidden_act": "silu",
}
OUTPUTS = {
    "Model": TOKENS,
    "ForMaskedLM": LOGITS,
    "ForSequenceClassification": LOGITS,
    "ForTokenClassification": LOGITS,
    "ForQuestionAnswering": SPAN,
}


def restore_angles(model):
    """Makes the table of angles what it was before all parameters were moved."""
    table = model.base_model.encoder.embed_positions
    with torch.no_grad():
        table.weight.copy_(table.create_weight())


def main():
    for ending, outputs in OUTPUTS.items():
        labels = 2 if ending == "ForQuestionAnswering" else 3
        changes = {
            "ForSequenceClassification": {"embedding_size": 16},
            "ForTokenClassification": {"rotary_value": True},
        }
        config = transformers.RoFormerConfig(**CONFIG | changes.get(ending, {}))
        name = f"roformer-{ending.removeprefix('For')}"
        make(name, f"RoFormer{ending}", config, outputs, segments=True, labels=labels, repair=restore_angles)


if __name__ == "__main__":
    main()
