"""Activation recomputation (gradient checkpointing) in the blocks of a model."""

import keras

from keras_transformer.backend import keras_private
from keras_transformer.blocks.block import Block


def recompute_blocks(model: keras.Model, every: int = 1) -> int:
    """Makes blocks of a model recompute their activations in the backward pass instead of keeping them.

    Activation memory falls to the inputs of the blocks and the activations of one block; a step takes about a third longer.
    Results are the same, dropout included. Saved models keep the setting; it does not affect exported files.

    Args:
        model: `keras.Model` with blocks of `keras_transformer.blocks`, at any depth.
        every: int >= 0. 1 for all blocks, 2 for every second one, and so on; 0 for none. Default 1.

    Returns:
        int: the number of blocks that recompute.

    Raises:
        ValueError: `every` is negative; the model has no such block.

    Example:

    >>> from keras_transformer.models import Encoder, Size
    >>> recompute_blocks(Encoder(Size(4, 8, 2, 16), vocabulary_size=10), every=2)
    2

    Reference: Chen et al., Training Deep Nets with Sublinear Memory Cost, arXiv 1604.06174.
    """
    if every < 0:
        raise ValueError(f"every must be at least 0. Received: {every}")
    # A layer may be used several times.
    blocks = list(
        {id(layer): layer for layer in keras_private.flatten_layers(model) if isinstance(layer, Block)}.values()
    )
    if not blocks:
        raise ValueError(f"{model.name!r} has no block of keras_transformer.blocks.")
    for index, block in enumerate(blocks):
        block.recompute = every > 0 and (index + 1) % every == 0
    model.train_function = None  # A function that is already traced would ignore the setting.
    return sum(block.recompute for block in blocks)
