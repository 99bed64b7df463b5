"""Image tokens in the midst of text."""

from __future__ import annotations

from typing import Any

import numpy as np
from keras import ops

from keras_transformer.attention.cache.cached_layer import CachedLayer
from keras_transformer.attention.cache.dense import token_slots
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Cache, Config, DType, Tensor


@serializable
class PlaceImages(CachedLayer):
    """Puts the tokens of images in the place of those that stand behind "an image begins".

    The L tokens behind each `begin_id` become the L tokens of the next image of the row; their own ids say nothing, and may
    be any but `begin_id`. Where there are more places than images, the rest stay text. `mark_images` makes such places.

    Args:
        begin_id: int: the token after which an image stands.

    Call arguments:
        inputs: float `(B, T, D)`: vectors of tokens.
        token_ids: int `(B, T)`.
        encoder_output: float `(B, I, L, D)`: I images of L tokens for each row; None with a cache that holds them.
        cache: dict as `init_cache` returns, with what `memory_cache` returns; or None.
        cache_index: int32 `()` or `(B,)`: the slot of each row's first new token.

    Returns:
        `(B, T, D)`; with a cache, `(output, cache)`.

    Raises:
        ValueError: neither images nor a cache that holds some.

    Cache: which slots hold `begin_id`, so that a prompt may be read in parts, and the images themselves.
    Export: all three formats, with and without a cache.

    Example:

    >>> import numpy as np
    >>> text, images = np.zeros((1, 5, 1), "float32"), np.array([[[[7.0], [8.0]]]], "float32")
    >>> PlaceImages(begin_id=9)(text, np.array([[5, 9, 0, 0, 6]]), encoder_output=images).numpy().ravel().tolist()
    [0.0, 0.0, 7.0, 8.0, 0.0]

    Reference: Huang et al., Kosmos-1, arXiv 2302.14045, section 2.1.
    """

    memory_names = ("images",)

    def __init__(self, begin_id: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.begin_id = begin_id

    def call(
        self,
        inputs: Tensor,
        token_ids: Tensor,
        encoder_output: Tensor | None = None,
        cache: Cache | None = None,
        cache_index: Tensor | None = None,
    ) -> Tensor:
        images = encoder_output if cache is None or "images" not in cache else cache["images"]
        if images is None:
            raise ValueError(f"{self.name} needs encoder_output, or a cache that holds images.")
        begins = ops.cast(ops.equal(token_ids, self.begin_id), "int32")
        if cache is None:
            is_place, number = _places(begins, images.shape[2])
        else:
            # All slots up to a token's own count for it; what lies behind may be of a text that was taken back.
            slots = token_slots(cache_index, ops.shape(token_ids)[1]) + ops.zeros_like(token_ids)
            cache = {**cache, "begins": _write(cache["begins"], slots, begins)}
            is_place, number = (_take(found, slots) for found in _places(cache["begins"], images.shape[2]))
        output = self._placed(inputs, images, is_place, number)
        return output if cache is None else (output, cache)

    def _placed(self, inputs, images, is_place, number):
        width = images.shape[-1]
        count = ops.shape(images)[1] * images.shape[2]
        is_place = ops.logical_and(ops.cast(is_place, "bool"), number < count)
        found = _take(ops.reshape(images, (-1, count, width)), ops.where(is_place, number, 0))
        return ops.where(ops.expand_dims(is_place, -1), ops.cast(found, inputs.dtype), inputs)

    def init_cache(self, batch_size: int, max_length: int, dtype: DType = None) -> Cache:
        """An empty cache for `max_length` tokens."""
        return {"begins": ops.zeros((batch_size, max_length), dtype="int32")}

    def memory_cache(self, encoder_output: Tensor) -> Cache:
        """The images, to be put into the cache once."""
        return {"images": encoder_output}

    def compute_output_spec(
        self,
        inputs: Tensor,
        token_ids: Tensor,
        encoder_output: Tensor | None = None,
        cache: Cache | None = None,
        cache_index: Tensor | None = None,
    ) -> Any:
        return self._output_spec(inputs.shape, cache)

    def get_config(self) -> Config:
        return {**super().get_config(), "begin_id": self.begin_id}


def mark_images(token_ids: Tensor, begin_id: int, num_image_tokens: int, placeholder_id: int = 0):
    """Token ids with places for the tokens of images: so many placeholders behind each `begin_id`.

    Args:
        token_ids: list of ints.
        begin_id: int: the token after which an image stands.
        num_image_tokens: int: the tokens of an image L.
        placeholder_id: int: any id but `begin_id`; the model does not read it.

    Returns:
        list of ints.

    Example:

    >>> mark_images([5, 9, 6], begin_id=9, num_image_tokens=2)
    [5, 9, 0, 0, 6]
    """
    marked = []
    for token in np.asarray(token_ids).tolist():
        marked += [token, *[placeholder_id] * num_image_tokens] if token == begin_id else [token]
    return marked


def _places(begins, length):
    """For each slot whether it is a place, 0 or 1, and the number of the image token that belongs there: int32 `(B, S)`."""
    count = ops.cumsum(begins, axis=1)
    before = ops.pad(count, ((0, 0), (length + 1, 0)))
    slots = ops.shape(begins)[1]
    # A place has a beginning among the tokens right before it, as many as an image has.
    recent = before[:, length : length + slots] - before[:, :slots]
    is_place = ops.cast(recent > 0, "int32")
    return is_place, ops.cumsum(is_place, axis=1) - 1


def _rows(slots):
    return ops.expand_dims(ops.arange(ops.shape(slots)[0], dtype="int32"), 1) + ops.zeros_like(slots)


def _take(table, places):
    """Entries of each row of `table`, `(B, S, ...)`, at `places`, int32 `(B, T)`: one gather from all rows at once."""
    size = ops.shape(table)[1]
    flat = ops.reshape(table, (-1, *table.shape[2:]))
    return ops.take(flat, places + _rows(places) * size, axis=0)


def _write(slab, slots, update):
    indices = ops.stack([ops.reshape(_rows(slots), (-1,)), ops.reshape(slots, (-1,))], axis=1)
    return ops.scatter_update(slab, indices, ops.reshape(update, (-1,)))
