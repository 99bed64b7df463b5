"""Makes the folders reformer-*: python tests/data/checkpoints/make_reformer.py (transformers 5.23, torch 2.13).

Rows are padded to 16 tokens within transformers: all of one chunk of hashes, so that rotations, which are drawn, are of no
account. `hashed.npz` in some folders has longer rows, the rotations that transformers draws for them with its `hash_seed`,
and its outputs in float64: in float32 it loses digits where a token sees itself alone.
"""

import numpy as np
import torch
import transformers
from encoders import LOGITS, SPAN, TOKENS, make
from writing import HERE, build, run

CONFIG = {
    "vocab_size": 60,
    "hidden_size": 16,
    "attn_layers": ["local", "lsh", "lsh"],
    "num_attention_heads": 2,
    "attention_head_size": 6,
    "feed_forward_size": 24,
    "axial_pos_shape": [8, 9],
    "axial_pos_embds_dim": [6, 10],
    "max_position_embeddings": 72,
    "local_attn_chunk_length": 4,
    "lsh_attn_chunk_length": 16,
    "num_buckets": [2, 4],
    "num_hashes": 2,
    "hash_seed": 3,
    "hidden_act": "silu",
}
CAUSAL = "ModelWithLMHead"
OUTPUTS = {
    "Model": TOKENS,
    CAUSAL: LOGITS,
    "ForMaskedLM": LOGITS,
    "ForSequenceClassification": LOGITS,
    "ForQuestionAnswering": SPAN,
}


def repair(model):
    """transformers 5 does not add the bias of the logits."""
    if hasattr(model, "lm_head"):
        with torch.no_grad():
            model.lm_head.bias.zero_()


def config_of(ending):
    more = {"is_decoder": ending == CAUSAL}
    if ending == "Model":
        more |= {"axial_pos_embds": False, "attn_layers": ["lsh", "lsh"]}
        more |= {"lsh_num_chunks_before": 2, "lsh_num_chunks_after": 1}
    if ending == "ForSequenceClassification":
        more |= {"local_num_chunks_before": 0, "local_num_chunks_after": 1}
    return transformers.ReformerConfig(**CONFIG | more)


def add_hashed(ending, output):
    """Rows of three chunks, of which the last is not full."""
    config = config_of(ending)
    config.num_labels = 3
    model = build(getattr(transformers, f"Reformer{ending}"), config).double()
    repair(model)
    token_ids = np.random.default_rng(5).integers(5, config.vocab_size, (2, 45))
    outputs = run(model, input_ids=token_ids, attention_mask=np.ones_like(token_ids))
    torch.manual_seed(config.hash_seed)
    rounds, columns = config.num_hashes, sum(config.num_buckets) // 2
    shape = (config.num_attention_heads, config.attention_head_size, rounds, columns)
    rotations = torch.randn(shape, dtype=torch.float64).numpy().reshape(*shape[:2], -1)
    arrays = {"token_ids": token_ids.astype("int32"), "rotations": rotations.astype("float32")}
    arrays[output] = outputs[output].numpy().astype("float32")
    np.savez_compressed(HERE / f"reformer-{ending}" / "hashed.npz", **arrays)


def main():
    for ending, outputs in OUTPUTS.items():
        labels = 2 if "Question" in ending else 3
        name = f"reformer-{ending.removeprefix('For')}"
        make(name, f"Reformer{ending}", config_of(ending), outputs, labels=labels, repair=repair)
    add_hashed(CAUSAL, "logits")
    add_hashed("Model", "last_hidden_state")


if __name__ == "__main__":
    main()
