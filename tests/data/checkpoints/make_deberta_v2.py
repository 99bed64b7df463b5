"""Makes the folders deberta_v2*: python tests/data/checkpoints/make_deberta_v2.py (transformers 5.23, torch 2.13)."""

import transformers
from encoders import LOGITS, SPAN, TOKENS, make

SHARED = {
    "vocab_size": 60,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "max_position_embeddings": 26,
    "hidden_act": "silu",
    "relative_attention": True,
    "pad_token_id": 3,
}
# As version 3, with texts beyond the largest distance.
V3 = {
    "pos_att_type": "p2c|c2p",
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
    "position_buckets": 6,
    "max_relative_positions": 12,
    "position_biased_input": False,
    "pooler_hidden_act": "relu",
}
# As version 2 in its first configs, with texts beyond the largest distance.
V2 = {
    "pos_att_type": ["c2p", "p2c"],
    "max_relative_positions": 7,
    "position_biased_input": True,
    "type_vocab_size": 3,
    "embedding_size": 12,
    "conv_kernel_size": 3,
    "conv_groups": 2,
    "conv_act": "gelu",
}
FOLDERS = {
    "deberta_v2-Model": (V3 | {"type_vocab_size": 1}, TOKENS),
    "deberta_v2-MaskedLM": (V2, LOGITS),
    "deberta_v2_published-MaskedLM": (
        V2 | {"legacy": False, "embedding_size": 16, "conv_kernel_size": 5, "conv_groups": 1, "conv_act": "tanh"},
        LOGITS,
    ),
    "deberta_v2-SequenceClassification": (V3, LOGITS),
    "deberta_v2-MultipleChoice": (V3 | {"pos_att_type": ["p2c"]}, LOGITS),
    "deberta_v2-TokenClassification": (V2 | {"pos_att_type": ["c2p"], "max_relative_positions": -1}, LOGITS),
    "deberta_v2-QuestionAnswering": (
        V3 | {"relative_attention": False, "pos_att_type": None, "position_biased_input": True},
        SPAN,
    ),
}
GRADIENTS = {
    "deberta_v2-MaskedLM": (
        "deberta.encoder.rel_embeddings.weight",
        "deberta.encoder.conv.conv.weight",
        "deberta.encoder.layer.0.attention.self.pos_query_proj.weight",
        "deberta.encoder.layer.1.attention.self.pos_key_proj.weight",
        "deberta.embeddings.embed_proj.weight",
    ),
    "deberta_v2-SequenceClassification": (
        "deberta.encoder.rel_embeddings.weight",
        "deberta.encoder.LayerNorm.weight",
        "deberta.encoder.layer.0.attention.self.query_proj.weight",
        "deberta.encoder.layer.1.attention.self.key_proj.weight",
    ),
}


def main():
    for name, (changes, outputs) in FOLDERS.items():
        cls = name.partition("-")[2]
        config = transformers.DebertaV2Config(**(SHARED | changes))
        make(
            name,
            f"DebertaV2{cls}" if cls == "Model" else f"DebertaV2For{cls}",
            config,
            outputs,
            segments=config.type_vocab_size > 1,
            labels=2 if outputs is SPAN else 3,
            lengths=(24, 14, 1),
            gradients_of=GRADIENTS.get(name, ()),
            real_tokens=cls == "MaskedLM",
        )


if __name__ == "__main__":
    main()
