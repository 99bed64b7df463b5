"""Flux: a diffusion transformer of images and text with two kinds of blocks."""

from __future__ import annotations

from typing import NamedTuple

import keras
from keras import ops

from keras_transformer.attention import JointAttention, MultiHeadAttention
from keras_transformer.blocks import JointBlock, SingleStreamBlock
from keras_transformer.feedforward import DenseFeedForward
from keras_transformer.layers.norms import RMSNormalization
from keras_transformer.models.building.image_stack import image_input
from keras_transformer.models.building.size import Size, get_size
from keras_transformer.models.diffusion.denoiser import norm_of_tokens, predict_image, text_condition, text_inputs
from keras_transformer.positions import GridRotary
from keras_transformer.utils.types import Activation
from keras_transformer.vision import PatchEmbedding
from keras_transformer.vision.patches.patch_embedding import pair_of

SIZES = {"12B": Size(num_layers=19, hidden_dim=3072, num_heads=24, intermediate_dim=12288)}


def Flux(
    size: str | Size = "12B",
    patch_size: int | tuple[int, int] = 2,
    image_size: int | tuple[int, int] = 128,
    *,
    num_single_layers: int = 38,
    num_channels: int = 16,
    text_dim: int = 4096,
    pooled_text_dim: int = 768,
    rotary_features: tuple[int, int] = (56, 56),
    guidance_embedding: bool = False,
    activation: Activation = "gelu_tanh",
    layer_norm_epsilon: float = 1e-6,
    name: str = "flux",
) -> keras.Model:
    """Flux, the diffusion transformer of FLUX.1: blocks of two streams, image and text, and then of a single one.

    First `JointBlock`s, as in `MMDiT`, in which image and text have weights of their own; then `SingleStreamBlock`s over
    both in one sequence. Patches are rotated by their rows and columns (`positions.GridRotary`). Train it with
    `diffusion.DenoisingTrainer`.

    Args:
        size: "12B", or a `Size`, whose layers are the blocks of two streams.
        patch_size: int or pair of ints. Pixels.
        image_size: int or pair of ints, a multiple of the patch size. Pixels, or the sides of latents.
        num_single_layers: int >= 0. Blocks of a single stream.
        num_channels: int. Default 16, those of latents.
        text_dim: int. Width of the encoded text.
        pooled_text_dim: int. Width of the pooled text.
        rotary_features: pair of even ints. See `GridRotary`. Default (56, 56), of heads of 128.
        guidance_embedding: bool. Whether the scale of guidance is an input, as in FLUX.1 [dev], a model
            that was distilled with guidance.
        activation: activation of the feed-forwards.
        layer_norm_epsilon: float > 0. Of every norm, of tokens, queries and keys.
        name: str.

    Returns:
        `keras.Model`: {"images": float `(B, height, width, channels)`, "times": float `(B,)` in [0, 1], "text": float
        `(B, S, text_dim)`, "pooled_text": float `(B, pooled_text_dim)`, "guidance": float `(B,)` if it is an input} to the
        prediction, float32 `(B, height, width, channels)` under every dtype policy.

    Raises:
        ValueError: unknown size; an image that does not divide into patches; heads of fewer than the rotated features.

    Example:

    >>> model = Flux(Size(1, 16, 2, 32), 4, 8, num_single_layers=2, num_channels=3, text_dim=6, rotary_features=(2, 4))
    >>> model.output_shape
    (None, 8, 8, 3)

    Reference: the published code of FLUX.1 (Black Forest Labs, 2024). Text has no padding mask, as there. The positions are
    those of an image without others beside it.
    """
    size = get_size(size, SIZES)
    inputs = {"images": image_input(image_size, num_channels), **text_inputs(text_dim, pooled_text_dim)}
    if guidance_embedding:
        inputs["guidance"] = keras.Input((), name="guidance")
    (height, width), patch = pair_of(image_size), pair_of(patch_size)
    grid = height // patch[0], width // patch[1]
    norm, condition = norm_of_tokens(layer_norm_epsilon), text_condition(inputs, size.hidden_dim)
    blocks = _Blocks(size, activation, grid[1], rotary_features, RMSNormalization(epsilon=layer_norm_epsilon), norm)
    embedding = PatchEmbedding(size.hidden_dim, patch, class_token=False, interpolation=None, name="patch_embedding")
    x = embedding(inputs["images"])
    context = keras.layers.Dense(size.hidden_dim, name="text_embedding")(inputs["text"])
    for index in range(size.num_layers):
        x, context = blocks.joint_block(index)(x, context, condition)
    x = ops.concatenate([x, context], axis=1)
    patches = grid[0] * grid[1]
    numbers = ops.cumsum(ops.ones_like(x[:1, :, 0], dtype="int32"), axis=1) - 1
    numbers = ops.where(numbers < patches, numbers, -1)
    for index in range(num_single_layers):
        x = blocks.single_stream_block(index)(x, condition, positions=numbers)
    return keras.Model(inputs, predict_image(x[:, :patches], condition, norm, patch, grid, num_channels), name=name)


class _Blocks(NamedTuple):
    """What the blocks of two streams and of a single one are made of.

    Attributes:
        columns: patches of a row.
        rotary_features: see `GridRotary`.
        head_norm: of queries and keys.
        norm: of tokens.
    """

    size: Size
    activation: Activation
    columns: int
    rotary_features: tuple[int, int]
    head_norm: keras.layers.Layer
    norm: keras.layers.Layer

    def joint_block(self, index: int) -> JointBlock:
        """Returns a new block of two streams."""
        attention = JointAttention(*self._heads(), self.head_norm, position=self._position(), name="attention")
        parts = (attention, self._feed_forward(), self._feed_forward("context_feedforward"))
        return JointBlock(*parts, norm=self.norm, name=f"joint_block_{index}")

    def single_stream_block(self, index: int) -> SingleStreamBlock:
        """Returns a new block of a single stream."""
        attention = MultiHeadAttention(
            *self._heads(),
            position=self._position(),
            query_key_norm=self.head_norm,
            use_output_bias=False,
            name="attention",
        )
        name = f"single_stream_block_{index}"
        return SingleStreamBlock(attention, self._feed_forward(), norm=self.norm, name=name)

    def _heads(self) -> tuple[int, int]:
        return self.size.num_heads, self.size.hidden_dim // self.size.num_heads

    def _position(self) -> GridRotary:
        return GridRotary(self.columns, self.rotary_features)

    def _feed_forward(self, name: str = "feedforward") -> DenseFeedForward:
        return DenseFeedForward(self.size.intermediate_dim, self.activation, name=name)
