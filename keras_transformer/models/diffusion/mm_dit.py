"""MM-DiT: the diffusion transformer of images and text."""

from __future__ import annotations

import keras

from keras_transformer.attention import JointAttention
from keras_transformer.blocks import JointBlock
from keras_transformer.models.building.image_stack import image_input
from keras_transformer.models.building.size import Size, get_size
from keras_transformer.models.building.stack import make_feed_forward
from keras_transformer.models.diffusion.denoiser import norm_of_tokens, predict_image, text_condition, text_inputs
from keras_transformer.positions import AxialSinusoidal
from keras_transformer.utils.types import Activation, LayerLike
from keras_transformer.vision import PatchEmbedding
from keras_transformer.vision.patches.patch_embedding import pair_of

# Width 64 d, d heads and d layers, section 4: SD3 medium (2B) and the largest model (8B).
SIZES = {
    "2B": Size(num_layers=24, hidden_dim=1536, num_heads=24, intermediate_dim=6144),
    "8B": Size(num_layers=38, hidden_dim=2432, num_heads=38, intermediate_dim=9728),
}


def MMDiT(
    size: str | Size = "2B",
    patch_size: int | tuple[int, int] = 2,
    image_size: int | tuple[int, int] = 128,
    *,
    num_channels: int = 16,
    text_dim: int = 4096,
    pooled_text_dim: int = 2048,
    query_key_norm: LayerLike | None = None,
    feedforward: str | keras.layers.Layer = "dense",
    activation: Activation = "gelu_tanh",
    layer_norm_epsilon: float = 1e-6,
    name: str = "mm_dit",
) -> keras.Model:
    """MM-DiT, the diffusion transformer of Stable Diffusion 3: images and encoded text in joint attention.

    Blocks are `JointBlock`s, conditioned on the sum of the embeddings of the time and of the pooled text. Train it with
    `diffusion.DenoisingTrainer`, on texts that an encoder of your choice has encoded.

    Args:
        size: "2B", "8B", or a `Size`.
        patch_size: int or pair of ints. Pixels.
        image_size: int or pair of ints, a multiple of the patch size. Pixels, or the sides of latents.
        num_channels: int. Default 16, those of latents.
        text_dim: int. Width of the encoded text.
        pooled_text_dim: int. Width of the pooled text.
        query_key_norm: a name in `blocks.NORMS`, such as "rms_norm" (SD3.5), or a layer to copy; None for none.
        feedforward: a name in `feedforward.FEEDFORWARDS`, or an instance to copy.
        activation: activation of a feed-forward that is given by name.
        layer_norm_epsilon: float > 0. Of every norm of tokens.
        name: str.

    Returns:
        `keras.Model`: {"images": float `(B, height, width, channels)`, "times": float `(B,)` in [0, 1], "text": float
        `(B, S, text_dim)`, "pooled_text": float `(B, pooled_text_dim)`} to the prediction, float32
        `(B, height, width, channels)` under every dtype policy.

    Raises:
        ValueError: unknown size; an image that does not divide into patches; a width that is not a multiple of 4.

    Example:

    >>> model = MMDiT(Size(2, 8, 2, 16), 4, 8, num_channels=3, text_dim=6, pooled_text_dim=5)
    >>> model.output_shape
    (None, 8, 8, 3)

    Reference: Esser et al., Scaling Rectified Flow Transformers, arXiv 2403.03206, section 4 and figure 2. Text has no
    padding mask, as in its published code. Positions are those of `image_size`; SD3 crops the middle of a larger grid.
    """
    size = get_size(size, SIZES)
    inputs = {"images": image_input(image_size, num_channels), **text_inputs(text_dim, pooled_text_dim)}
    (height, width), patch = pair_of(image_size), pair_of(patch_size)
    grid = height // patch[0], width // patch[1]
    norm, condition = norm_of_tokens(layer_norm_epsilon), text_condition(inputs, size.hidden_dim)
    context = keras.layers.Dense(size.hidden_dim, name="text_embedding")(inputs["text"])
    embedding = PatchEmbedding(size.hidden_dim, patch, class_token=False, interpolation=None, name="patch_embedding")
    x = AxialSinusoidal(grid[1], name="position_embedding")(embedding(inputs["images"]))
    for index in range(size.num_layers):
        is_last = index == size.num_layers - 1
        block = JointBlock(
            JointAttention(
                size.num_heads,
                size.hidden_dim // size.num_heads,
                query_key_norm,
                context_output=not is_last,
                name="attention",
            ),
            make_feed_forward(size.intermediate_dim, feedforward, activation),
            None if is_last else _context_feed_forward(size, feedforward, activation),
            norm=norm,
            name=f"joint_block_{index}",
        )
        x = block(x, context, condition)
        x, context = (x, None) if is_last else x
    return keras.Model(inputs, predict_image(x, condition, norm, patch, grid, num_channels), name=name)


def _context_feed_forward(size, feedforward, activation):
    layer = make_feed_forward(size.intermediate_dim, feedforward, activation)
    return type(layer).from_config({**layer.get_config(), "name": "context_feedforward"})
