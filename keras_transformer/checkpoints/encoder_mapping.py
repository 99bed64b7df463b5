"""The mapping of BERT and its relatives: names of tensors in embeddings and post-norm blocks."""

from __future__ import annotations

from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.mapping import Entry, attention, embedding, linear, norm


def embedding_entries() -> list[Entry]:
    """The mapping of the embeddings, under the names of BERT."""
    return [
        *embedding("embeddings.word_embeddings", "token_embedding"),
        *embedding("embeddings.token_type_embeddings", "segment_embedding"),
        *embedding("embeddings.position_embeddings", "position_embedding"),
        *norm("embeddings.LayerNorm", "embedding_norm"),
    ]


def encoder_entries(config: Config) -> list[Entry]:
    """The mapping of all blocks, under the names of BERT."""
    indices = range(config.integer("num_hidden_layers"))
    return [entry for i in indices for entry in block_entries(f"encoder.layer.{i}", f"encoder_block_{i}")]


def block_entries(theirs: str, ours: str) -> list[Entry]:
    """The mapping of one post-norm block, under the names of BERT."""
    return [
        *attention(
            f"{ours}/self_attention",
            query=f"{theirs}.attention.self.query",
            key=f"{theirs}.attention.self.key",
            value=f"{theirs}.attention.self.value",
            output=f"{theirs}.attention.output.dense",
        ),
        *norm(f"{theirs}.attention.output.LayerNorm", f"{ours}/mixer_residual/norm"),
        *linear(f"{theirs}.intermediate.dense", f"{ours}/feedforward/hidden"),
        *linear(f"{theirs}.output.dense", f"{ours}/feedforward/output"),
        *norm(f"{theirs}.output.LayerNorm", f"{ours}/feedforward_residual/norm"),
    ]
