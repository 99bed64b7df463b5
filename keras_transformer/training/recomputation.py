"""Less memory for more time: the blocks of a model that recompute."""

from keras_transformer.backend import keras_private
from keras_transformer.blocks.block import Block


def recompute_blocks(model, every=1):
    """Lets blocks of a model compute their activations a second time, in the backward pass, in place of keeping them.

    Memory for activations falls to the inputs of the blocks and one block's inside; a step takes about a third longer. What
    is learned stays the same, dropout included. A model that is saved keeps the setting; what is exported does not know it.

    Args:
        model: `keras.Model` with blocks of `keras_transformer.blocks`, at any depth.
        every: int >= 0. 1 for all blocks, 2 for every second one, and so on; 0 for none.

    Returns:
        int: how many blocks recompute.

    Raises:
        ValueError: `every` is negative; the model holds no block.

    Example:

    >>> from keras_transformer.models import Encoder, Size
    >>> recompute_blocks(Encoder(Size(4, 8, 2, 16), vocabulary_size=10), every=2)
    2

    Reference: Chen et al., Training Deep Nets with Sublinear Memory Cost, arXiv 1604.06174.
    """
    if every < 0:
        raise ValueError(f"every must be at least 0. Received: {every}")
    # One that stands in several places is one block.
    blocks = list(
        {id(layer): layer for layer in keras_private.flatten_layers(model) if isinstance(layer, Block)}.values()
    )
    if not blocks:
        raise ValueError(f"{model.name!r} holds no block of keras_transformer.blocks.")
    for index, block in enumerate(blocks):
        block.recompute = every > 0 and (index + 1) % every == 0
    model.train_function = None  # What was traced before knows nothing of it.
    return sum(block.recompute for block in blocks)
