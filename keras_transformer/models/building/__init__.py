"""Parts that architectures share: sizes, embeddings, stacks of blocks and wrappers of models."""
