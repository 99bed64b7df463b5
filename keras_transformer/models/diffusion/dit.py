"""DiT: the diffusion transformer."""

from __future__ import annotations

import keras

from keras_transformer.blocks import AdaLNZeroResidual, EncoderBlock
from keras_transformer.diffusion import LabelEmbedding, TimestepEmbedding
from keras_transformer.models.building.image_stack import image_input
from keras_transformer.models.building.size import Size, get_size
from keras_transformer.models.building.stack import make_attention, make_feed_forward
from keras_transformer.models.diffusion.denoiser import norm_of_tokens, predict_image
from keras_transformer.positions import AxialSinusoidal
from keras_transformer.utils.types import Activation, AttentionLike
from keras_transformer.vision import PatchEmbedding
from keras_transformer.vision.patches.patch_embedding import pair_of

# Table 1.
SIZES = {
    "S": Size(num_layers=12, hidden_dim=384, num_heads=6, intermediate_dim=1536),
    "B": Size(num_layers=12, hidden_dim=768, num_heads=12, intermediate_dim=3072),
    "L": Size(num_layers=24, hidden_dim=1024, num_heads=16, intermediate_dim=4096),
    "XL": Size(num_layers=28, hidden_dim=1152, num_heads=16, intermediate_dim=4608),
}


def DiT(
    size: str | Size = "B",
    patch_size: int | tuple[int, int] = 2,
    image_size: int | tuple[int, int] = 32,
    *,
    num_channels: int = 4,
    num_classes: int | None = 1000,
    label_dropout: float = 0.1,
    feedforward: str | keras.layers.Layer = "dense",
    activation: Activation = "gelu_tanh",
    dropout: float = 0.0,
    attention: AttentionLike = None,
    layer_norm_epsilon: float = 1e-6,
    name: str = "dit",
) -> keras.Model:
    """DiT, the diffusion transformer: predicts the noise, or the velocity, in images from their patches, time and class.

    Blocks are `EncoderBlock`s with `AdaLNZeroResidual`, conditioned on the sum of the embeddings of time and class. Train it
    with `diffusion.DenoisingTrainer`; `diffusion.ImageGenerator` makes images with it.

    Args:
        size: "S", "B", "L", "XL", or a `Size`.
        patch_size: int or pair of ints. Pixels.
        image_size: int or pair of ints, a multiple of the patch size. Pixels, or the sides of latents.
        num_channels: int. Default 4, those of latents.
        num_classes: int >= 1, or None for a model without labels. The label `num_classes` stands for no class.
        label_dropout: float in [0, 1]. Share of the labels that training replaces by no class.
        feedforward: a name in `feedforward.FEEDFORWARDS`, or an instance to copy.
        activation: activation of a feed-forward that is given by name.
        dropout: float in [0, 1). Of what attention and feed-forward give.
        attention: a name in `attention.MECHANISMS`, or a layer like `MultiHeadAttention` to copy for each block.
        layer_norm_epsilon: float > 0. Of every norm.
        name: str.

    Returns:
        `keras.Model`: {"images": float `(B, height, width, channels)`, "times": float `(B,)` in [0, 1], "labels": int32
        `(B,)` if there are classes} to the prediction, float32 `(B, height, width, channels)` under every dtype policy.

    Raises:
        ValueError: unknown size; an image that does not divide into patches; a width that is not a multiple of 4.

    Example:

    >>> model = DiT(Size(1, 8, 2, 16), patch_size=4, image_size=8, num_channels=3, num_classes=10)
    >>> model.output_shape
    (None, 8, 8, 3)

    Reference: Peebles and Xie, Scalable Diffusion Models with Transformers, arXiv 2212.09748. The patches are embedded with
    the initialization of a convolution, and the model does not predict the variances of DDPM.
    """
    size = get_size(size, SIZES)
    inputs = {"images": image_input(image_size, num_channels), "times": keras.Input((), name="times")}
    (height, width), patch = pair_of(image_size), pair_of(patch_size)
    grid = height // patch[0], width // patch[1]
    norm = norm_of_tokens(layer_norm_epsilon)
    condition = TimestepEmbedding(size.hidden_dim, name="timestep_embedding")(inputs["times"])
    if num_classes is not None:
        inputs["labels"] = keras.Input((), dtype="int32", name="labels")
        labels = LabelEmbedding(num_classes, size.hidden_dim, label_dropout, name="label_embedding")(inputs["labels"])
        condition = keras.layers.Add(name="condition")([condition, labels])
    embedding = PatchEmbedding(size.hidden_dim, patch, class_token=False, interpolation=None, name="patch_embedding")
    x = embedding(inputs["images"])
    x = AxialSinusoidal(grid[1], name="position_embedding")(x)
    for index in range(size.num_layers):
        block = EncoderBlock(
            make_attention(size, attention),
            make_feed_forward(size.intermediate_dim, feedforward, activation),
            residual=AdaLNZeroResidual(norm),
            dropout=dropout,
            name=f"encoder_block_{index}",
        )
        x = block(x, condition=condition)
    return keras.Model(inputs, predict_image(x, condition, norm, patch, grid, num_channels), name=name)
