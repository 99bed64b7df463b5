"""The names that diffusers has for the parts of our transformers of images and texts."""

import numpy as np

BLOCK = {
    "attention/query": "attn.to_q",
    "attention/key": "attn.to_k",
    "attention/value": "attn.to_v",
    "attention/attention_output": "attn.to_out.0",
    "attention/context_query": "attn.add_q_proj",
    "attention/context_key": "attn.add_k_proj",
    "attention/context_value": "attn.add_v_proj",
    "attention/context_attention_output": "attn.to_add_out",
    "attention/query_norm": "attn.norm_q",
    "attention/key_norm": "attn.norm_k",
    "attention/context_query_norm": "attn.norm_added_q",
    "attention/context_key_norm": "attn.norm_added_k",
    "feedforward/hidden": "ff.net.0.proj",
    "feedforward/output": "ff.net.2",
    "context_feedforward/hidden": "ff_context.net.0.proj",
    "context_feedforward/output": "ff_context.net.2",
}
NAMES = {
    "timestep_embedding/hidden": "time_text_embed.timestep_embedder.linear_1",
    "timestep_embedding/output": "time_text_embed.timestep_embedder.linear_2",
    "pooled_text_hidden": "time_text_embed.text_embedder.linear_1",
    "pooled_text_embedding": "time_text_embed.text_embedder.linear_2",
    "text_embedding": "context_embedder",
    **BLOCK,
}
KINDS = {"kernel": "weight", "scale": "weight", "bias": "bias"}


def rows_of(width):
    """The rows of one projection: shift, scale and gate of attention, then of the feed-forward."""
    return {
        "attention_residual/modulation/projection": slice(0, 2 * width),
        "attention_residual/gate": slice(2 * width, 3 * width),
        "feedforward_residual/modulation/projection": slice(3 * width, 5 * width),
        "feedforward_residual/gate": slice(5 * width, 6 * width),
    }


def swapped(rows):
    """Shift and scale, from the scale and shift of the norm at the end."""
    half = len(rows) // 2
    return np.concatenate([rows[half:], rows[:half]])


def of_joint_block(weights, block, part, kind, width):
    """The weight of diffusers for a part of a block of two streams."""
    prefix, own = f"weights/transformer_blocks.{block[-1]}.", part.removeprefix("context_")
    if own in rows_of(width):
        norm = "norm1" if own == part else "norm1_context"
        return weights[f"{prefix}{norm}.linear.{kind}"][rows_of(width)[own]].T
    return weights[f"{prefix}{BLOCK[part]}.{kind}"].T
