"""Makes the folders bigbird-*: python tests/data/checkpoints/make_bigbird.py (transformers 5.23, torch 2.13).

Texts of "bigbird_long" are longer than those that transformers reads with full attention.
"""

import transformers
from encoders import LOGITS, POOLED, make

CONFIG = {
    "vocab_size": 60,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "max_position_embeddings": 20,
    "type_vocab_size": 3,
    "hidden_act": "silu",
    "block_size": 2,
    "num_random_blocks": 1,
    "sep_token_id": 3,
}
OUTPUTS = {
    "Model": POOLED,
    "ForMaskedLM": LOGITS,
    "ForPreTraining": {"logits": "prediction_logits", "sentence_logits": "seq_relationship_logits"},
    "ForSequenceClassification": LOGITS,
    "ForMultipleChoice": LOGITS,
    "ForTokenClassification": LOGITS,
}


def main():
    for ending, outputs in OUTPUTS.items():
        full = {"attention_type": "original_full"} if ending == "Model" else {}
        config = transformers.BigBirdConfig(**{**CONFIG, **full})
        name = f"bigbird-{ending.removeprefix('For')}"
        make(name, f"BigBird{ending}", config, outputs, segments=True, lengths=(10, 7, 1))
    config = transformers.BigBirdConfig(**{**CONFIG, "num_random_blocks": 2, "max_position_embeddings": 24})
    make("bigbird_long-Model", "BigBirdModel", config, POOLED, segments=True, lengths=(23, 13, 1))


if __name__ == "__main__":
    main()
