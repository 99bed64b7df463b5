"""Reference implementations in torch of mechanisms for long sequences, as modules from `(B, T, D)` to `(B, T, D)`.

Those of Hugging Face have no output projection, so one is added.
"""

import torch
from torch import nn


class _Projected(nn.Module):
    """A Hugging Face attention, called by `run(attention, x)`, with an output projection."""

    def __init__(self, attention, width, run):
        super().__init__()
        self.attention, self.run, self.output = attention, run, nn.Linear(width, width)

    def forward(self, x):
        return self.output(self.run(self.attention, x))


def longformer(length, heads, key_dim, window, causal):
    from transformers import LongformerConfig
    from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

    config = LongformerConfig(
        hidden_size=heads * key_dim,
        num_attention_heads=heads,
        attention_window=[window],
        attention_probs_dropout_prob=0.0,
        max_position_embeddings=length,
    )
    mask, nowhere = torch.zeros(1, length), torch.zeros(1, length, dtype=torch.bool)
    # The first token is global, as in ours.
    everywhere = nowhere.clone()
    everywhere[:, 0] = True
    mask[:, 0] = 1.0

    def run(attention, x):
        options = {"is_index_masked": nowhere, "is_index_global_attn": everywhere, "is_global_attn": True}
        return attention(x, attention_mask=mask, **options)[0]

    return _Projected(LongformerSelfAttention(config, 0), heads * key_dim, run)


def bigbird(length, heads, key_dim, window, causal):
    from transformers import BigBirdConfig
    from transformers.models.big_bird.modeling_big_bird import BigBirdBlockSparseAttention, BigBirdModel

    size = window // 4
    config = BigBirdConfig(
        hidden_size=heads * key_dim,
        num_attention_heads=heads,
        block_size=size,
        num_random_blocks=3,
        attention_probs_dropout_prob=0.0,
        max_position_embeddings=length,
    )
    masks = BigBirdModel.create_masks_for_block_sparse_attn(torch.ones(1, length), size)
    blocked, band, of_queries, of_keys = masks

    def run(attention, x):
        return attention(x, band, of_queries, of_keys, blocked, blocked)[0]

    return _Projected(BigBirdBlockSparseAttention(config, seed=0), heads * key_dim, run)


def lsh(length, heads, key_dim, window, causal):
    from transformers import ReformerConfig
    from transformers.models.reformer.modeling_reformer import LSHSelfAttention

    config = ReformerConfig(
        hidden_size=heads * key_dim,
        num_attention_heads=heads,
        attention_head_size=key_dim,
        attn_layers=["lsh"],
        lsh_attn_chunk_length=64,
        num_hashes=LSH_ROUNDS,
        num_buckets=max(2, 2 * length // 64),
        is_decoder=causal,
        lsh_attention_probs_dropout_prob=0.0,
        axial_pos_embds=False,
        max_position_embeddings=length,
    )
    return _Projected(LSHSelfAttention(config), heads * key_dim, lambda attention, x: attention(x).hidden_states)


LSH_ROUNDS = 2


def performer(length, heads, key_dim, window, causal):
    from performer_pytorch import SelfAttention

    # Its default number of features is key_dim * log(key_dim), as in ours.
    return SelfAttention(heads * key_dim, causal=causal, heads=heads, dim_head=key_dim)


def linear(length, heads, key_dim, window, causal):
    from linear_attention_transformer.linear_attention_transformer import SelfAttention

    return SelfAttention(heads * key_dim, heads, causal=causal, dim_head=key_dim, blindspot_size=1)


def linformer(length, heads, key_dim, window, causal):
    from linformer import LinformerSelfAttention

    return LinformerSelfAttention(heads * key_dim, length, k=window, heads=heads, dim_head=key_dim)


class Full(nn.Module):
    """Attention by torch's fused kernel, which stores no matrix of weights, also on the CPU."""

    def __init__(self, length, heads, key_dim, window, causal):
        super().__init__()
        self.heads, self.causal, width = heads, causal, heads * key_dim
        self.into, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        parts = self.into(x).unflatten(2, (3 * self.heads, -1)).transpose(1, 2).chunk(3, dim=1)
        context = nn.functional.scaled_dot_product_attention(*parts, is_causal=self.causal)
        return self.output(context.transpose(1, 2).flatten(2))


# Our name -> the peer.
PEERS = {
    "softmax": Full,
    "blockwise": Full,
    "longformer": longformer,
    "bigbird": bigbird,
    "lsh": lsh,
    "performer": performer,
    "linear": linear,
    "linformer": linformer,
}
