"""The patch embedding of the Vision Transformer."""

import keras
from keras import ops

from keras_transformer.saving import serializable


@serializable
class PatchEmbedding(keras.layers.Layer):
    """Cuts images into patches and gives each a vector: `[class; patch_1 E; ...; patch_n E] + position`.

    One convolution whose stride is its kernel size. The position table is learned for one grid of patches; images of another
    size get it resized, so that weights trained at one size serve at another.

    Args:
        hidden_dim: int >= 1. Width of the tokens D.
        patch_size: int or pair of ints. Height and width of a patch in pixels.
        grid_size: int or pair of ints: the patches, down and across, that the position table is for. None for those of the
            images that the layer is built with.
        class_token: bool. Whether a learned token comes first.
        dropout: float in [0, 1). Of the tokens.
        interpolation: "bilinear" (exports to every format) or "bicubic" (Keras and SavedModel): how the table is resized.
        seed: int or None. Of the dropout.

    Call arguments:
        images: float `(B, height, width, channels)`; height and width are known and multiples of the patch size.

    Returns:
        `(B, tokens, D)`: `height/patch · width/patch` tokens, and the class token if asked.

    Raises:
        ValueError: images of unknown size, or not a multiple of the patch size.

    Example:

    >>> import numpy as np
    >>> tuple(PatchEmbedding(16, patch_size=4)(np.zeros((1, 8, 12, 3))).shape)
    (1, 7, 16)

    Reference: Dosovitskiy et al., arXiv 2010.11929, equation 1; the resized table, section 3.2.
    """

    def __init__(
        self,
        hidden_dim,
        patch_size=16,
        grid_size=None,
        class_token=True,
        dropout=0.0,
        interpolation="bilinear",
        seed=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if interpolation not in ("bilinear", "bicubic"):
            raise ValueError(f"interpolation must be 'bilinear' or 'bicubic'. Received: {interpolation!r}")
        self.hidden_dim = hidden_dim
        self.patch_size = _pair(patch_size)
        self.grid_size = None if grid_size is None else _pair(grid_size)
        self.class_token = class_token
        self.dropout = dropout
        self.interpolation = interpolation
        self.seed = seed
        self._projection = keras.layers.Conv2D(
            hidden_dim, self.patch_size, strides=self.patch_size, dtype=self.dtype_policy, name="projection"
        )
        self._dropout_layer = keras.layers.Dropout(dropout, seed=seed, dtype=self.dtype_policy)

    def build(self, images_shape):
        grid = self.grid_size or self._grid(images_shape)
        self._projection.build(images_shape)
        if self.class_token:
            self.class_embedding = self.add_weight(
                name="class_embedding", shape=(1, 1, self.hidden_dim), initializer="zeros"
            )
        self.position_embeddings = self.add_weight(
            name="position_embeddings",
            shape=(grid[0] * grid[1] + int(self.class_token), self.hidden_dim),
            initializer=keras.initializers.TruncatedNormal(stddev=0.02),
        )
        self._table_grid = grid

    def call(self, images, training=None):
        grid = self._grid(images.shape)
        tokens = ops.reshape(self._projection(images), (-1, grid[0] * grid[1], self.hidden_dim))
        if self.class_token:
            first = ops.cast(self.class_embedding, tokens.dtype)
            first = ops.zeros_like(tokens[:, :1]) + first  # One for each example.
            tokens = ops.concatenate([first, tokens], axis=1)
        tokens = tokens + ops.cast(self._positions(grid), tokens.dtype)
        return self._dropout_layer(tokens, training=training)

    def _positions(self, grid):
        """`(1, tokens, D)`: the table, resized to `grid`."""
        table = ops.expand_dims(ops.convert_to_tensor(self.position_embeddings), 0)
        if grid == self._table_grid:
            return table
        head = int(self.class_token)
        patches = ops.reshape(table[:, head:], (1, *self._table_grid, self.hidden_dim))
        patches = ops.image.resize(patches, grid, interpolation=self.interpolation, data_format="channels_last")
        patches = ops.reshape(patches, (1, grid[0] * grid[1], self.hidden_dim))
        return ops.concatenate([table[:, :head], patches], axis=1)

    def _grid(self, images_shape):
        """Patches down and across."""
        size = images_shape[1:3]
        if None in size:
            raise ValueError(f"Height and width of the images must be known. Received shape: {tuple(images_shape)}")
        if size[0] % self.patch_size[0] or size[1] % self.patch_size[1]:
            raise ValueError(f"Images of {size[0]} x {size[1]} do not divide into patches of {self.patch_size}.")
        return (size[0] // self.patch_size[0], size[1] // self.patch_size[1])

    def compute_output_shape(self, images_shape):
        grid = self._grid(images_shape)
        return (images_shape[0], grid[0] * grid[1] + int(self.class_token), self.hidden_dim)

    def get_config(self):
        return {
            **super().get_config(),
            "hidden_dim": self.hidden_dim,
            "patch_size": self.patch_size,
            "grid_size": self.grid_size,
            "class_token": self.class_token,
            "dropout": self.dropout,
            "interpolation": self.interpolation,
            "seed": self.seed,
        }


def _pair(size):
    return (size, size) if isinstance(size, int) else tuple(size)
