"""XLNet with the memory of previous segments."""

from __future__ import annotations

import keras
from keras import ops

from keras_transformer.attention import TwoStreamAttention
from keras_transformer.attention.arguments import positive
from keras_transformer.blocks import EncoderBlock


def with_memory(
    backbone: keras.Model,
    *,
    memory_length: int | None = None,
    reuse_length: int | None = None,
    name: str | None = None,
) -> keras.Model:
    """`XLNet` that reads a text segment by segment: each block attends to its own inputs of previous segments as well.

    The memory is an input and an output, and nothing else is kept. That before the first segment has no tokens:
    `np.zeros((B, num_layers, 0, D))`. All of it is visible, and it belongs to segment id 0, as in transformers. Only the
    last segment of a row may have padding, as padding would be visible in the next one.

    Args:
        backbone: `XLNet`. Its layers are used, not copied.
        memory_length: int >= 1, or None for no limit. How many of the last tokens are kept.
        reuse_length: int >= 1, or None for all. How many tokens of a segment, counted from its start, enter the memory.
        name: str, or None for that of the backbone.

    Returns:
        `keras.Model`: the backbone's inputs with "memory", float `(B, num_layers, M, D)`, to {"tokens": `(B, T, D)`,
        "memory": `(B, num_layers, M', D)`}, the memory for the next segment, through which no gradient flows.

    Raises:
        ValueError: the backbone is no `XLNet`; a length below 1.

    Example:

    >>> import numpy as np
    >>> from keras_transformer.models import Size, XLNet
    >>> model = with_memory(XLNet(Size(2, 16, 2, 32), vocabulary_size=100, use_segments=False), memory_length=5)
    >>> segment = {"token_ids": np.ones((1, 4), "int32"), "padding_mask": np.ones((1, 4), bool)}
    >>> first = model({**segment, "memory": np.zeros((1, 2, 0, 16))})
    >>> second = model({**segment, "memory": np.array(first["memory"])})
    >>> first["memory"].shape[2], second["memory"].shape[2]
    (4, 5)

    Reference: Yang et al., XLNet, arXiv 1906.08237, section 2.4; Dai et al., Transformer-XL, arXiv 1901.02860, section 3.2.
    The lengths are `mem_len` and `reuse_len` of transformers.
    """
    layers = {layer.name: layer for layer in backbone.layers}
    blocks = [layer for layer in backbone.layers if isinstance(layer, EncoderBlock)]
    if not blocks or not all(isinstance(block.mixer, TwoStreamAttention) for block in blocks):
        raise ValueError(f"{backbone.name!r} is no XLNet: its blocks have no TwoStreamAttention.")
    memory_length = memory_length if memory_length is None else positive("memory_length", memory_length)
    reuse_length = reuse_length if reuse_length is None else positive("reuse_length", reuse_length)
    inputs = dict(backbone.input)
    x = layers["embedding_dropout"](layers["token_embedding"](inputs["token_ids"]))
    inputs["memory"] = keras.Input((len(blocks), None, x.shape[-1]), dtype=x.dtype, name="memory")
    known = {key: value for key, value in inputs.items() if key not in ("token_ids", "memory")}
    memories = []
    for index, block in enumerate(blocks):
        memory = inputs["memory"][:, index]
        following = ops.concatenate([memory, x[:, :reuse_length]], axis=1)
        memories.append(following if memory_length is None else following[:, -memory_length:])
        x = block(x, memory=memory, **known)
    outputs = {
        "tokens": layers["output_dropout"](x),
        "memory": ops.stop_gradient(ops.stack(memories, axis=1)),
    }
    return keras.Model(inputs, outputs, name=name or backbone.name)
