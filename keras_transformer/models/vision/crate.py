"""CRATE, a white-box transformer."""

from __future__ import annotations

import keras

from keras_transformer.attention import MultiHeadAttention, SubspaceAttention
from keras_transformer.feedforward import ISTA
from keras_transformer.layers.norms import LayerNormalization
from keras_transformer.models.building.image_stack import image_input, image_stack
from keras_transformer.models.building.size import Size, get_size
from keras_transformer.vision import PatchEmbedding

# Yu et al., arXiv 2306.01129, table 1. The dictionary is as wide as the tokens.
SIZES = {
    "Ti": Size(num_layers=12, hidden_dim=384, num_heads=6, intermediate_dim=384),
    "S": Size(num_layers=12, hidden_dim=576, num_heads=12, intermediate_dim=576),
    "B": Size(num_layers=12, hidden_dim=768, num_heads=12, intermediate_dim=768),
    "L": Size(num_layers=24, hidden_dim=1024, num_heads=16, intermediate_dim=1024),
}


def CRATE(
    size: str | Size = "B",
    patch_size: int = 16,
    image_size: int | tuple[int, int] = 224,
    *,
    num_channels: int = 3,
    grid_size: int | None = None,
    class_token: bool = True,
    interpolation: str = "bilinear",
    step_size: float = 0.1,
    sparsity_weight: float = 0.1,
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
    layer_norm_epsilon: float = 1e-5,
    name: str = "crate",
) -> keras.Model:
    """CRATE up to its last norm: each block compresses the tokens, then makes them sparse. `tasks.ImageClassifier` puts a
    head on it.

    A block is `z = z + MSSA(norm(z))`, a step that lowers the coding rate of the tokens in learned subspaces, and
    `z = ISTA(norm(z))`, a step towards a sparse code. `training.CodingRate` logs how far each block gets, and
    `plots.coding_rate` draws it.

    Args:
        size: "Ti", "S", "B", "L", or a `Size` whose `intermediate_dim` is its `hidden_dim`.
        patch_size: int or pair of ints. Pixels.
        image_size: int or pair of ints, a multiple of the patch size. Pixels.
        num_channels: int.
        grid_size: int or pair of ints: the patches that the position table is for, when the weights come from images of
            another size; None for those of `image_size`.
        class_token: bool. Whether a learned token comes first.
        interpolation: "bilinear" or "bicubic": how the position table is resized.
        step_size: float > 0. η of `feedforward.ISTA`.
        sparsity_weight: float >= 0. λ of `feedforward.ISTA`.
        dropout: float in [0, 1). Of the embedded patches.
        attention_dropout: float in [0, 1). Of the attention weights.
        layer_norm_epsilon: float > 0. Of every norm.
        name: str.

    Returns:
        `keras.Model`: "images", float `(B, height, width, channels)`, to tokens `(B, T, D)`.

    Raises:
        ValueError: unknown size, or one with another `intermediate_dim`; an image that does not divide into patches.

    Example:

    >>> model = CRATE("Ti", patch_size=16, image_size=32)
    >>> model.output_shape
    (None, 5, 384)

    Reference: Yu et al., White-Box Transformers via Sparse Rate Reduction, arXiv 2306.01129, section 2, and its code, in
    which every norm is a layer norm and patches are normalized before and after their projection. Class token and
    positions start small, as in `models.ViT`. With `pooling="mean"` the mean is of normalized tokens, without the class
    token; their code normalizes the mean of all.
    """
    size = _checked(get_size(size, SIZES))
    norm = LayerNormalization(epsilon=layer_norm_epsilon)
    embedding = PatchEmbedding(
        size.hidden_dim,
        patch_size,
        grid_size=grid_size,
        class_token=class_token,
        dropout=dropout,
        interpolation=interpolation,
        norm=norm,
        name="patch_embedding",
    )
    return image_stack(
        image_input(image_size, num_channels),
        embedding,
        size,
        residual="none",
        mixer_residual="pre",
        norm=norm,
        last_norm=LayerNormalization(epsilon=layer_norm_epsilon, name="final_norm"),
        attention=_attention(size, attention_dropout),
        feedforward=ISTA(step_size, sparsity_weight),
        name=name,
    )


def _checked(size: Size) -> Size:
    if size.intermediate_dim != size.hidden_dim:
        raise ValueError(
            f"The dictionary of CRATE is as wide as the tokens: intermediate_dim must equal it. Received: {size}"
        )
    return size


def _attention(size: Size, dropout: float) -> MultiHeadAttention:
    """Multi-head subspace self-attention, MSSA."""
    return MultiHeadAttention(
        size.num_heads,
        size.hidden_dim // size.num_heads,
        mechanism=SubspaceAttention(dropout=dropout),
        use_bias=False,
        use_output_bias=True,
    )
