"""Preparation of text with images for multimodal models."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.text.batching import pad_batch
from keras_transformer.utils.types import ArrayLike
from keras_transformer.vision.errors import ImageError
from keras_transformer.vision.interleaved.place_images import mark_images
from keras_transformer.vision.processing.image_loading import image_list

if TYPE_CHECKING:
    from keras_transformer.text.tokenizers.tokenizer import Tokenizer


class ImagesInText:
    """Prepares texts with interleaved images for a model such as `models.Kosmos`.

    The text marks the position of each image, such as "<image></image>"; to a text without marks, one is prepended for each
    of its images. Placeholders for the tokens of the image follow the token that begins it.

    Args:
        processor: function of a list of images that returns float `(B, height, width, channels)`, such as an
            `ImageProcessor`.
        tokenizer: a tokenizer of `text`.
        begin_id: int: the token before the tokens of an image.
        num_image_tokens: int >= 1: the number of tokens of an image, L.
        frame: str: the mark that is prepended for an image.

    Call arguments:
        images: for each text an image, or a list of images, in any form that `processor` accepts.
        texts: str, or list of str.
        padding: None, "longest", or the int length of every row.

    Returns:
        A dict. Without padding: {"images": float32 `(B, I, height, width, channels)`, zeros for texts with fewer than I
        images, "token_ids": list of lists}, for `generate`. With padding: "token_ids", int32 `(B, T)`, and "padding_mask",
        bool `(B, T)`, for `fit` and `predict`.

    Raises:
        ImageError: different numbers of images and texts, or of a text's images and marks; an image that cannot be read.
        TextError: a row is longer than `padding`.
        ValueError: `begin_id` is not a token of the tokenizer, or `frame` does not contain it once.

    Example:

    >>> from keras_transformer.text import Characters
    >>> from keras_transformer.vision import ImageProcessor
    >>> tokenizer = Characters("ab[]")
    >>> begin = tokenizer.token_to_id("[")
    >>> prepare = ImagesInText(ImageProcessor((8, 8)), tokenizer, begin, num_image_tokens=2, frame="[]")
    >>> inputs = prepare([np.zeros((5, 5, 3), "uint8")], ["ab"])
    >>> inputs["images"].shape, [tokenizer.id_to_token(index) for index in inputs["token_ids"][0]]
    ((1, 1, 8, 8, 3), ['<s>', '[', ']', ']', ']', 'a', 'b'])

    Reference: the `Kosmos2Processor` of transformers, which takes one image, before the text. Its placeholders have ids of
    their own; here they repeat the token after them, since no model reads them.
    """

    def __init__(
        self,
        processor: Callable[[list], ArrayLike],
        tokenizer: Tokenizer,
        begin_id: int,
        num_image_tokens: int,
        frame: str = "<image></image>",
    ) -> None:
        if not 0 <= begin_id < tokenizer.vocabulary_size:
            raise ValueError(f"begin_id must be in [0, {tokenizer.vocabulary_size}). Received: {begin_id}")
        framed: Any = list(tokenizer.encode(frame))
        if framed.count(begin_id) != 1 or len(framed) < 2:
            begin = tokenizer.id_to_token(begin_id)
            raise ValueError(f"frame must contain {begin!r} once, and the end of an image. Received: {frame!r}")
        self.processor = processor
        self.tokenizer = tokenizer
        self.begin_id = begin_id
        self.num_image_tokens = num_image_tokens
        self.frame = frame
        self._end_id = framed[-1]

    def __call__(
        self, images: ArrayLike, texts: str | Sequence[str], padding: str | int | None = None
    ) -> dict[str, Any]:
        if isinstance(texts, str):
            images, texts = [images], [texts]
        if len(images) != len(texts):
            raise ImageError(f"There are images for {len(images)} texts, but {len(texts)} texts.")
        lists = [image_list(each) for each in images]
        pairs = enumerate(zip(lists, texts, strict=True))
        rows = [self._encode(number, len(each), text) for number, (each, text) in pairs]
        pixels = {"images": stacked_pixels(self.processor, lists)}
        if padding is None:
            return {**pixels, "token_ids": rows}
        return {**pixels, **pad_batch(rows, self.tokenizer.pad_id, padding)}

    def _encode(self, number, count, text):
        """Returns the tokens of a text, with placeholders for its images."""
        encode = functools.partial(self.tokenizer.encode, start=True)
        row = marked_tokens(encode, text, self.begin_id, self.frame * count, count, number)
        return mark_images(row, self.begin_id, self.num_image_tokens, self._end_id)


def marked_tokens(
    encode: Callable[[str], Iterable[int]], text: str, mark: int, frames: str, count: int, number: int
) -> list[int]:
    """Returns the tokens of a text with a mark for each of its images: with `frames` before it, if it has no mark.

    Raises:
        ImageError: other than `count` marks; it names the text by its number.
    """
    row = list(encode(text))
    if mark not in row:
        row = list(encode(frames + text))
    if row.count(mark) != count:
        raise ImageError(f"Text {number} has marks for {row.count(mark)} images. Received: {count}")
    return row


def stacked_pixels(processor: Callable[[list], ArrayLike], images: Sequence[Sequence[object]]) -> np.ndarray:
    """Processes lists of images, all at once, into `(B, I, height, width, channels)`."""
    processed = np.asarray(processor([image for row in images for image in row]))
    return by_row(processed, [len(row) for row in images])


def by_row(array: np.ndarray, counts: Sequence[int]) -> np.ndarray:
    """Returns what was made of the images of all rows, `(n, ...)`, row by row, `(B, I, ...)` with zeros behind; I is at
    least 1."""
    is_there = np.arange(max(1, *counts)) < np.array(counts)[:, None]
    rows = np.zeros((*is_there.shape, *array.shape[1:]), array.dtype)
    rows[is_there] = array[: is_there.sum()]
    return rows
