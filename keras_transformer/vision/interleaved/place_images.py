"""Insertion of image tokens into text."""

from __future__ import annotations

from typing import Unpack

import numpy as np
from keras import ops

from keras_transformer.attention.cache.cached_layer import CachedLayer
from keras_transformer.attention.cache.dense import token_slots
from keras_transformer.layers.row_gather import take_of_row, write_to_row
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import ArrayLike, Cache, Config, DType, LayerOptions, Outputs, Tensor


@serializable
class PlaceImages(CachedLayer):
    """Replaces placeholder tokens in a text by the tokens of images.

    The L tokens after each `begin_id` are replaced by the L tokens of the next image of the row; their ids are ignored and
    may be any but `begin_id`. Placeholders beyond the number of images remain text. `mark_images` inserts placeholders.

    Args:
        begin_id: int: the token before the tokens of an image.

    Call arguments:
        inputs: float `(B, T, D)`: token embeddings.
        token_ids: int `(B, T)`.
        encoder_output: float `(B, I, L, D)`: I images of L tokens for each row; None with a cache that contains them.
        cache: dict of `init_cache`, optionally joined with that of `memory_cache`; or None.
        cache_index: int32 `()` or `(B,)`: the slot of the first new token of each row.

    Returns:
        `(B, T, D)`; with a cache, `(output, cache)`.

    Raises:
        ValueError: neither images nor a cache that contains them.

    Cache: the slots of `begin_id`, so that a prompt can be processed in parts, and the images.
    Export: all three formats, with and without a cache.

    Example:

    >>> import numpy as np
    >>> text, images = np.zeros((1, 5, 1), "float32"), np.array([[[[7.0], [8.0]]]], "float32")
    >>> PlaceImages(begin_id=9)(text, np.array([[5, 9, 0, 0, 6]]), encoder_output=images).numpy().ravel().tolist()
    [0.0, 0.0, 7.0, 8.0, 0.0]

    Reference: Huang et al., Kosmos-1, arXiv 2302.14045, section 2.1.
    """

    memory_names = ("images",)

    def __init__(self, begin_id: int, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.begin_id = begin_id

    def call(
        self,
        inputs: Tensor,
        token_ids: Tensor,
        encoder_output: Tensor | None = None,
        cache: Cache | None = None,
        cache_index: Tensor | None = None,
    ) -> Outputs:
        images = encoder_output if cache is None or "images" not in cache else cache["images"]
        if images is None:
            raise ValueError(f"{self.name} needs encoder_output, or a cache that contains images.")
        begins = ops.cast(ops.equal(token_ids, self.begin_id), "int32")
        if cache is None:
            is_placeholder, number = self._placeholders(begins, images.shape[2])
        else:
            # Only slots up to a token's own count for it; later ones may be of a text that was discarded.
            slots = token_slots(cache_index, ops.shape(token_ids)[1]) + ops.zeros_like(token_ids)
            cache = {**cache, "begins": write_to_row(cache["begins"], slots, begins)}
            found = self._placeholders(cache["begins"], images.shape[2])
            is_placeholder, number = (take_of_row(each, slots) for each in found)
        output = self._replace(inputs, images, is_placeholder, number)
        return output if cache is None else (output, cache)

    def _placeholders(self, begins, length):
        """Whether each slot is a placeholder, 0 or 1, and the index of its image token: int32 `(B, S)`."""
        return _placeholders(begins, length)

    def _replace(self, inputs, images, is_placeholder, number):
        _, count, length, width = ops.shape(images)
        count = count * length
        is_image = ops.logical_and(ops.cast(is_placeholder, "bool"), number < count)
        tokens = take_of_row(ops.reshape(images, (-1, count, width)), ops.where(is_image, number, 0))
        return ops.where(ops.expand_dims(is_image, -1), ops.cast(tokens, inputs.dtype), inputs)

    def init_cache(self, batch_size: int, max_length: int, dtype: DType = None) -> Cache:
        """Returns the empty cache for `max_length` tokens."""
        return {"begins": ops.zeros((batch_size, max_length), dtype="int32")}

    def memory_cache(self, encoder_output: Tensor) -> Cache:
        """Returns the images, to be added to the cache once."""
        return {"images": encoder_output}

    def compute_output_spec(
        self,
        inputs: Tensor,
        token_ids: Tensor,
        encoder_output: Tensor | None = None,
        cache: Cache | None = None,
        cache_index: Tensor | None = None,
    ) -> Outputs:
        return self._output_spec(inputs.shape, cache)

    def get_config(self) -> Config:
        return {**super().get_config(), "begin_id": self.begin_id}


@serializable
class FillImages(PlaceImages):
    """Replaces each token with a certain id by the next token of the images of its row.

    Unlike with `PlaceImages`, the placeholders themselves are marked, so that a row may have any number of them anywhere.
    Those beyond the tokens of its images remain text.

    Args:
        token_id: int: the placeholder.

    Call arguments and returns: as for `PlaceImages`.

    Example:

    >>> import numpy as np
    >>> text, images = np.zeros((1, 5, 1), "float32"), np.array([[[[7.0], [8.0]]]], "float32")
    >>> FillImages(token_id=9)(text, np.array([[9, 9, 5, 6, 9]]), encoder_output=images).numpy().ravel().tolist()
    [7.0, 8.0, 0.0, 0.0, 0.0]

    Reference: Beyer et al., PaliGemma, arXiv 2407.07726, section 3.2.3, as in transformers.
    """

    def __init__(self, token_id: int, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(token_id, **kwargs)

    def _placeholders(self, begins, length):
        return begins, ops.cumsum(begins, axis=1) - 1

    def get_config(self) -> Config:
        config = super().get_config()
        return {"token_id": config.pop("begin_id"), **config}


def mark_images(token_ids: ArrayLike, begin_id: int, num_image_tokens: int, placeholder_id: int = 0) -> list[int]:
    """Inserts placeholders for the tokens of an image after each `begin_id`.

    Args:
        token_ids: list of ints.
        begin_id: int: the token before the tokens of an image.
        num_image_tokens: int: the number of tokens of an image, L.
        placeholder_id: int: any id but `begin_id`; models ignore it.

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


def _placeholders(begins, length):
    """Whether each slot is a placeholder, 0 or 1, and the index of its image token: int32 `(B, S)`."""
    count = ops.cumsum(begins, axis=1)
    before = ops.pad(count, ((0, 0), (length + 1, 0)))
    slots = ops.shape(begins)[1]
    # A placeholder has a `begin_id` among the `length` tokens before it.
    recent = before[:, length : length + slots] - before[:, :slots]
    is_placeholder = ops.cast(recent > 0, "int32")
    return is_placeholder, ops.cumsum(is_placeholder, axis=1) - 1
