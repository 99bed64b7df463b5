"""The image tower of SigLIP 2 for images of any size and shape."""

from __future__ import annotations

import keras

from keras_transformer.blocks import EncoderBlock
from keras_transformer.layers.norms import LayerNormalization
from keras_transformer.models.building.size import Size, get_size
from keras_transformer.models.building.stack import make_attention, make_feed_forward, make_norm, padding_input
from keras_transformer.models.multimodal.probe_pooling import ProbePooling
from keras_transformer.models.multimodal.siglip import TOWERS
from keras_transformer.utils.types import Activation
from keras_transformer.vision import NaFlexEmbedding
from keras_transformer.vision.patches.patch_embedding import pair_of

# Tschannen et al., arXiv 2502.14786, section 2.1: also "g", which transformers' checkpoints have.
SIZES = {**TOWERS, "g": Size(40, 1536, 16, 6144)}


def SigLIP2Vision(
    size: str | Size = "B",
    patch_size: int | tuple[int, int] = 16,
    *,
    num_channels: int = 3,
    grid_size: int | tuple[int, int] = 16,
    use_head: bool = True,
    activation: Activation = "gelu_tanh",
    attention_dropout: float = 0.0,
    layer_norm_epsilon: float = 1e-6,
    name: str = "siglip2_vision",
) -> keras.Model:
    """The image tower of SigLIP 2 for images of any size and shape (NaFlex), which come as sequences of patches.

    The checkpoints of SigLIP 2 for images of one size have the tower of SigLIP: `SigLIPVision`. `vision.NaFlexProcessor`
    makes the inputs from images.

    Args:
        size: "B", "L", "So400m", "g", or a `Size`.
        patch_size: int or pair of ints. Pixels.
        num_channels: int.
        grid_size: int or pair of ints: the patches of the position table.
        use_head: bool. Whether tokens are pooled.
        activation: activation of the feed-forward.
        attention_dropout: float in [0, 1). Of the attention weights.
        layer_norm_epsilon: float > 0. Of every norm.
        name: str.

    Returns:
        `keras.Model`: {"patches": float `(B, P, height width channels)`, "patch_grid": int32 `(B, 2)`, "patch_mask": bool
        `(B, P)`} to {"tokens": `(B, P, D)`, "pooled": `(B, D)`}; to the tokens alone without a head. P is any number.

    Raises:
        ValueError: unknown size; heads that do not divide the width.

    Example:

    >>> model = SigLIP2Vision(Size(1, 8, 2, 16), patch_size=4, grid_size=2)
    >>> model.output["tokens"].shape
    (None, None, 8)

    Reference: Tschannen et al., SigLIP 2, arXiv 2502.14786, section 2.4.2.
    """
    size, patch = get_size(size, SIZES), pair_of(patch_size)
    patches = keras.Input((None, patch[0] * patch[1] * num_channels), name="patches")
    grid, mask = keras.Input((2,), dtype="int32", name="patch_grid"), padding_input("patch_mask", optional=False)
    norm = LayerNormalization(epsilon=layer_norm_epsilon)
    x = NaFlexEmbedding(size.hidden_dim, grid_size, name="patch_embedding")(patches, grid)
    for index in range(size.num_layers):
        block = EncoderBlock(
            make_attention(size, dropout=attention_dropout),
            make_feed_forward(size.intermediate_dim, "dense", activation),
            norm=norm,
            residual="pre",
            name=f"image_encoder_block_{index}",
        )
        x = block(x, padding_mask=mask)
    x = make_norm(norm, "image_norm")(x)
    inputs = {"patches": patches, "patch_grid": grid, "patch_mask": mask}
    if not use_head:
        return keras.Model(inputs, x, name=name)
    pool = ProbePooling(size.num_heads, size.intermediate_dim, activation, layer_norm_epsilon, name="pooling")
    return keras.Model(inputs, {"tokens": x, "pooled": pool(x, padding_mask=mask)}, name=name)
