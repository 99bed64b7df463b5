"""An encoder whose last block computes the first token alone, which is all that a classifier reads."""

from __future__ import annotations

import keras

from keras_transformer.backend import keras_private
from keras_transformer.blocks.encoders.encoder_block import EncoderBlock
from keras_transformer.blocks.encoders.first_token import check_first_token
from keras_transformer.models.transforms.graph_walk import walk
from keras_transformer.models.transforms.known_operations import is_known


def first_token(backbone: keras.Model) -> keras.Model:
    """Returns the same backbone with shared weights, of which the last block computes the first token alone.

    A classifier that reads the class token needs nothing else: in the last block, all tokens are keys and values, and only
    the first is a query and passes the feed-forward. Outputs and gradients are those of `backbone(inputs)[:, :1]`. A block
    of width D and 4 D inside computes 2 of its 12 D² products for each token, so that of L blocks the fraction
    `1 - 5 / (6 L)` remains: training and inference of 6 blocks take about 0.86 of the time, of 12 about 0.93.

    Args:
        backbone: Functional `keras.Model` to tokens `(B, T, D)` that ends with an `EncoderBlock` and layers that compute
            each token independently, such as `models.ViT` or `models.Encoder`. It is not changed.

    Returns:
        `keras.Model`: the inputs of `backbone` to `(B, 1, D)`, with its layers: training one trains both.
        `tasks.ImageClassifier` with `pooling="class_token"` takes it.

    Raises:
        ValueError: the last block is no `EncoderBlock`, or has a part that cannot compute one token alone, such as a
            mechanism other than softmax, a mixture of experts, or given positions; or an operation after it mixes tokens.

    `attention.attention_maps` returns the scores of all tokens.

    Example:

    >>> from keras_transformer import models
    >>> backbone = models.ViT(models.Size(2, 8, 2, 16), patch_size=4, image_size=8)
    >>> backbone.output_shape, first_token(backbone).output_shape
    ((None, 5, 8), (None, 1, 8))

    Reference: Touvron et al., Going deeper with Image Transformers, arXiv 2103.17239, section 3 (layers in which only the
    class token is computed). Deviation: one block, whose tokens are the keys as in every other block.
    """
    nodes = keras_private.nodes_in_order(backbone)
    last = max((index for index, node in enumerate(nodes) if isinstance(node.operation, EncoderBlock)), default=None)
    if last is None or type(nodes[last].operation) is not EncoderBlock:
        raise ValueError(f"{backbone.name!r} does not end with an EncoderBlock: it computes all tokens.")
    mixing = next((node.operation for node in nodes[last + 1 :] if not is_known(node)), None)
    if mixing is not None:
        raise ValueError(f"{mixing.name!r} after the last block of {backbone.name!r} may need all tokens.")

    def call(node, layer, args, kwargs):
        if node is not nodes[last]:
            return layer(*args, **kwargs)
        given = {name for name, value in kwargs.items() if value is not None} - {"padding_mask"}
        check_first_token(layer, has_other_arguments=len(args) > 1 or bool(given))
        return layer(*args, **kwargs, first_token_only=True)

    known = [*backbone.inputs, *(tensor for node in nodes[:last] for tensor in node.outputs)]
    values = {id(tensor): tensor for tensor in known}
    walk(nodes[last:], values, call)
    return keras.Model(backbone.input, values[id(backbone.output)], name=backbone.name)
