"""The patch embedding of the Vision Transformer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

import keras
from keras import ops

from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.norms import NORMS
from keras_transformer.utils.serialization import clone, resolve, serializable, serialize
from keras_transformer.utils.types import Config, LayerLike, LayerOptions, Shape, Tensor
from keras_transformer.vision.resizing.interpolation import INTERPOLATIONS, resize_matrix


@serializable
class PatchEmbedding(keras.layers.Layer):
    """Patch embedding of the Vision Transformer: `[class; patch_1 E; ...; patch_n E] + position`.

    A convolution with stride = kernel size. The position table is learned for one grid of patches and resized for images of
    other sizes, so that weights trained at one size can be used at another.

    Args:
        hidden_dim: int >= 1. Width of the tokens D.
        patch_size: int or pair of ints. Height and width of a patch in pixels. Default 16.
        grid_size: int or pair of ints: rows and columns of patches of the position table. None: those of the images that
            the layer is built with.
        class_token: bool. Whether to prepend a learned token. Default True.
        distillation_token: bool. Whether to add a second one after it, as in DeiT. Default False.
        num_register_tokens: int >= 0. Learned tokens without positions, after the class and distillation tokens. Default 0.
        mask_token: bool. Whether a learned vector can replace patches, for masked image modeling. Default False.
        use_bias: bool. Whether the projection of patches has a bias. Default True.
        norm: a name in `NORMS`, or a layer to copy, for a norm over the pixels of each patch and one over its embedding;
            None (the default) for no norms.
        dropout: float in [0, 1). Dropout rate of the tokens.
        interpolation: "bilinear" or "bicubic": interpolation of the table; None for no table, where positions are inside
            attention: see `PatchCoordinates`.
        seed: int or None. Seed of the dropout.

    Call arguments:
        images: float `(B, height, width, channels)`. With a position table or a norm, height and width are static and
            multiples of the patch size; without, they are any, and pixels beyond the last whole patch do not count.
        patch_mask: boolean `(B, patches)`, or None: True = the mask token replaces the patch. Requires `mask_token`.

    Returns:
        `(B, tokens, D)`: the class, distillation and register tokens, if any, then `height/patch · width/patch` tokens.

    Raises:
        ValueError: images of unknown size, or not a multiple of the patch size; a `patch_mask` without a mask token; a
            `grid_size` without a table.

    Example:

    >>> import numpy as np
    >>> tuple(PatchEmbedding(16, patch_size=4)(np.zeros((1, 8, 12, 3))).shape)
    (1, 7, 16)

    Reference: Dosovitskiy et al., arXiv 2010.11929, equation 1; the resized table, section 3.2. The distillation token:
    Touvron et al., DeiT, arXiv 2012.12877, section 4; registers: Darcet et al., arXiv 2309.16588, section 2.2; the mask
    token: Xie et al., SimMIM, arXiv 2111.09886, section 3.1; the norms: Yu et al., CRATE, arXiv 2306.01129, as in its
    published code.
    """

    mask_embedding: keras.Variable
    position_embeddings: keras.Variable
    class_embedding: keras.Variable
    distillation_embedding: keras.Variable
    register_embeddings: keras.Variable

    def __init__(
        self,
        hidden_dim: int,
        patch_size: int | Sequence[int] = 16,
        grid_size: int | Sequence[int] | None = None,
        class_token: bool = True,
        dropout: float = 0.0,
        interpolation: str | None = "bilinear",
        seed: int | None = None,
        *,
        distillation_token: bool = False,
        num_register_tokens: int = 0,
        mask_token: bool = False,
        use_bias: bool = True,
        norm: LayerLike | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        _check_table(interpolation, grid_size)
        self.hidden_dim = hidden_dim
        self.patch_size = pair_of(patch_size)
        self.grid_size = None if grid_size is None else pair_of(grid_size)
        self.class_token = class_token
        self.distillation_token = distillation_token
        self.num_register_tokens = num_register_tokens
        self.mask_token = mask_token
        self.use_bias = use_bias
        self.dropout = dropout
        self.interpolation = interpolation
        self.seed = seed
        self._projection = keras.layers.Conv2D(
            hidden_dim, self.patch_size, self.patch_size, use_bias=use_bias, dtype=self.dtype_policy, name="projection"
        )
        self.norm = resolve(norm, NORMS, keras.layers.Layer, argument="norm")
        self._pixel_norm, self._token_norm = (
            clone(self.norm, name=name, dtype=self.dtype_policy) for name in ("pixel_norm", "token_norm")
        )
        self._dropout_layer = Dropout(dropout, seed=seed, dtype=self.dtype_policy)

    @property
    def num_prefix_tokens(self) -> int:
        """The number of tokens before those of the patches."""
        return self._num_placed_tokens + self.num_register_tokens

    @property
    def _num_placed_tokens(self) -> int:
        """The number of tokens before those of the patches that may have a row of the position table."""
        return int(self.class_token) + int(self.distillation_token)

    def build(self, images_shape: Shape) -> None:
        grid = self.grid_size or self._grid(images_shape)
        self._projection.build(images_shape)
        if self.norm is not None and grid is not None:
            shape = (images_shape[0], grid[0] * grid[1])
            self._pixel_norm.build((*shape, self.patch_size[0] * self.patch_size[1] * images_shape[-1]))
            self._token_norm.build((*shape, self.hidden_dim))
        for name in ("class", "distillation"):
            if getattr(self, f"{name}_token"):
                token = self.add_weight(name=f"{name}_embedding", shape=(1, 1, self.hidden_dim), initializer="zeros")
                setattr(self, f"{name}_embedding", token)
        if self.mask_token:
            self.mask_embedding = self.add_weight(name="mask_embedding", shape=(self.hidden_dim,), initializer="zeros")
        self._table_grid = table = None if self.interpolation is None else grid
        if table is not None:
            self.position_embeddings = self.add_weight(
                name="position_embeddings",
                shape=(table[0] * table[1] + self._num_placed_tokens, self.hidden_dim),
                initializer=keras.initializers.TruncatedNormal(stddev=0.02),
            )
        if self.num_register_tokens:
            shape = (self.num_register_tokens, self.hidden_dim)
            self.register_embeddings = self.add_weight(name="register_embeddings", shape=shape, initializer="zeros")

    def call(self, images: Tensor, patch_mask: Tensor | None = None, training: bool | None = None) -> Tensor:
        grid = self._grid(images.shape)
        tokens = self._normalized(images, grid) if self.norm is not None else self._projection(images)
        sizes = (ops.shape(tokens)[0], -1) if grid is None else (-1, grid[0] * grid[1])
        tokens = ops.reshape(tokens, (*sizes, self.hidden_dim))
        if patch_mask is not None:
            tokens = self._hide(tokens, patch_mask)
        first = [self.class_embedding] if self.class_token else []
        first += [self.distillation_embedding] if self.distillation_token else []
        if first:
            one = ops.zeros_like(tokens[:, :1])  # Repeats the tokens for each example.
            tokens = ops.concatenate([*(one + ops.cast(token, tokens.dtype) for token in first), tokens], axis=1)
        table = self._positions(grid)
        tokens = tokens if table is None else tokens + ops.cast(table, tokens.dtype)
        if self.num_register_tokens:
            registers = ops.expand_dims(ops.cast(self.register_embeddings, tokens.dtype), 0)
            registers = registers + ops.zeros_like(tokens[:, :1])
            count = self._num_placed_tokens
            tokens = ops.concatenate([tokens[:, :count], registers, tokens[:, count:]], axis=1)
        return self._dropout_layer(tokens, training=training)

    def _normalized(self, images, grid):
        """Returns the patch embeddings with norms before and after the projection, `(B, patches, D)`."""
        (rows, columns), (height, width), depth = grid, self.patch_size, images.shape[-1]
        x = ops.reshape(images, (-1, rows, height, columns, width * depth))
        x = ops.reshape(ops.transpose(x, (0, 1, 3, 2, 4)), (-1, rows * columns, height * width * depth))
        x = ops.matmul(self._pixel_norm(x), ops.reshape(self._projection.kernel, (-1, self.hidden_dim)))
        return self._token_norm(x + self._projection.bias if self.use_bias else x)

    def _hide(self, tokens, patch_mask):
        if not self.mask_token:
            raise ValueError("patch_mask needs mask_token=True.")
        hidden = ops.expand_dims(ops.cast(patch_mask, "bool"), -1)
        return ops.where(hidden, ops.reshape(ops.cast(self.mask_embedding, tokens.dtype), (1, 1, -1)), tokens)

    def _positions(self, grid):
        """Returns the position table, resized to `grid`, `(1, tokens, D)`; None if there is none."""
        table_grid, interpolation = self._table_grid, self.interpolation
        if table_grid is None or interpolation is None:
            return None
        table = ops.convert_to_tensor(self.position_embeddings)
        if grid == table_grid:
            return ops.expand_dims(table, 0)
        head, (rows, columns) = self._num_placed_tokens, table_grid
        down, across = (
            ops.cast(resize_matrix(old, new, interpolation), table.dtype)
            for old, new in zip(table_grid, grid, strict=True)
        )
        patches = ops.matmul(down, ops.reshape(table[head:], (rows, columns * self.hidden_dim)))
        patches = ops.matmul(across, ops.reshape(patches, (grid[0], columns, self.hidden_dim)))
        patches = ops.reshape(patches, (grid[0] * grid[1], self.hidden_dim))
        return ops.expand_dims(ops.concatenate([table[:head], patches], axis=0), 0)

    def _grid(self, images_shape):
        """Returns the rows and columns of patches; None if they are dynamic."""
        size = images_shape[1:3]
        if None in size and self.interpolation is None and self.norm is None:
            return None
        if None in size:
            raise ValueError(f"Height and width of the images must be static. Received shape: {tuple(images_shape)}")
        has_grid = self.interpolation is not None or self.norm is not None
        if has_grid and (size[0] % self.patch_size[0] or size[1] % self.patch_size[1]):
            raise ValueError(f"Images of {size[0]} x {size[1]} are not divisible into patches of {self.patch_size}.")
        return (size[0] // self.patch_size[0], size[1] // self.patch_size[1])

    def compute_output_shape(self, images_shape: Shape, *args: object, **kwargs: object) -> Shape:
        grid = self._grid(images_shape)
        length = None if grid is None else grid[0] * grid[1] + self.num_prefix_tokens
        return (images_shape[0], length, self.hidden_dim)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "hidden_dim": self.hidden_dim,
            "patch_size": self.patch_size,
            "grid_size": self._table_grid if self.built else self.grid_size,
            "class_token": self.class_token,
            "distillation_token": self.distillation_token,
            "num_register_tokens": self.num_register_tokens,
            "mask_token": self.mask_token,
            "use_bias": self.use_bias,
            "norm": serialize(self.norm),
            "dropout": self.dropout,
            "interpolation": self.interpolation,
            "seed": self.seed,
        }


def pair_of(size: int | Sequence[int]) -> tuple[int, ...]:
    """Returns height and width from one number or two."""
    return (size, size) if isinstance(size, int) else tuple(size)


def _check_table(interpolation: str | None, grid_size: int | Sequence[int] | None) -> None:
    if interpolation is not None and interpolation not in INTERPOLATIONS:
        raise ValueError(f"interpolation must be 'bilinear', 'bicubic' or None. Received: {interpolation!r}")
    if interpolation is None and grid_size is not None:
        raise ValueError("grid_size is the size of a position table, which interpolation=None leaves out.")
