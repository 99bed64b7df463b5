"""Positions of text and of the tokens of images in it, on three axes."""

from __future__ import annotations

import keras
from keras import ops

from keras_transformer.attention.cache.cached_layer import CachedLayer
from keras_transformer.attention.cache.dense import cache_spec, token_slots
from keras_transformer.layers.row_gather import take_of_row, write_to_row
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Cache, Config, DType, Outputs, Tensor
from keras_transformer.vision.positions.images_at import images_at, of_images


@serializable
class ImagePositions(CachedLayer):
    """Positions of text and of the tokens of images in it on three axes, time, row and column, for `MultimodalRotary`.

    A token of text has the same position on all axes, one more than the token before. The tokens of an image that begins at
    position p are at `(p, p + row, p + column)`, and the text after it goes on at `p + max(rows, columns)`.

    Args:
        token_id: int: the placeholder of each token of an image.

    Call arguments:
        token_ids: int `(B, T)`.
        encoder_output: int `(B, I, 2)`: rows and columns of tokens of each image of a row in order, zeros for none; None
            with a cache that contains them.
        cache: dict of `init_cache`, optionally joined with that of `memory_cache`; or None.
        cache_index: int32 `()` or `(B,)`: the slot of the first new token of each row.

    Returns:
        int32 `(B, T, 3)`; with a cache, `(positions, cache)`. Padding counts as text. Placeholders beyond the tokens of the
        images are text.

    Raises:
        ValueError: neither a grid nor a cache that contains it.

    Cache: the slots of placeholders, so that a prompt can be processed in parts, and the grid.
    Export: all three formats, with and without a cache.

    Example:

    >>> import numpy as np
    >>> layer = ImagePositions(token_id=9)
    >>> layer(np.array([[5, 9, 9, 9, 6]]), encoder_output=np.array([[[1, 3]]])).numpy()[0].tolist()
    [[0, 0, 0], [1, 1, 1], [1, 1, 2], [1, 1, 3], [4, 4, 4]]

    Reference: Wang et al., Qwen2-VL, arXiv 2409.12191, section 2.1 (M-RoPE), for images; videos have further positions of
    time, and are not supported.
    """

    memory_names = ("grid",)

    def __init__(self, token_id: int, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.token_id = token_id

    def call(
        self,
        token_ids: Tensor,
        encoder_output: Tensor | None = None,
        cache: Cache | None = None,
        cache_index: Tensor | None = None,
    ) -> Outputs:
        grid = encoder_output if cache is None or "grid" not in cache else cache["grid"]
        if grid is None:
            raise ValueError(f"{self.name} needs encoder_output, or a cache that contains the grid of the images.")
        slots = token_slots(0 if cache is None else cache_index, ops.shape(token_ids)[1])
        slots = slots + ops.zeros_like(ops.cast(token_ids, "int32"))
        marks = ops.cast(ops.equal(token_ids, self.token_id), "int32")
        if cache is None:
            count = ops.cumsum(marks, axis=1)
        else:
            # Only slots up to a token's own count for it; later ones may be of a text that was discarded.
            cache = {**cache, "placeholders": write_to_row(cache["placeholders"], slots, marks)}
            count = take_of_row(ops.cumsum(cache["placeholders"], axis=1), slots)
        positions = _positions(slots, marks, count, ops.cast(grid, "int32"))
        return positions if cache is None else (positions, cache)

    def init_cache(self, batch_size: int, max_length: int, dtype: DType = None) -> Cache:
        """Returns the empty cache for `max_length` tokens."""
        return {"placeholders": ops.zeros((batch_size, max_length), dtype="int32")}

    def memory_cache(self, encoder_output: Tensor) -> Cache:
        """Returns the grid of the images, to be added to the cache once."""
        return {"grid": encoder_output}

    def compute_output_spec(
        self,
        token_ids: Tensor,
        encoder_output: Tensor | None = None,
        cache: Cache | None = None,
        cache_index: Tensor | None = None,
    ) -> Outputs:
        positions = keras.KerasTensor((*token_ids.shape, 3), dtype="int32")
        return positions if cache is None else (positions, cache_spec(cache))

    def get_config(self) -> Config:
        return {**super().get_config(), "token_id": self.token_id}


def _positions(slots: Tensor, marks: Tensor, count: Tensor, grid: Tensor) -> Tensor:
    """Returns int32 `(B, T, 3)`; `marks` and `count` are which tokens are placeholders, and how many there are so far."""
    rows, columns = grid[:, :, 0], grid[:, :, 1]
    before, here = images_at(count - marks, grid)
    # An image of n tokens takes as many positions as its longer side.
    saved = of_images(before, rows * columns - ops.maximum(rows, columns))
    inside = marks * ops.sum(here, axis=2)
    number = inside * (count - marks - of_images(before, rows * columns))
    row = number // ops.maximum(of_images(here, columns), 1)
    start = slots - number - saved
    return ops.stack([start, start + row, start + number - row * of_images(here, columns)], axis=2)
