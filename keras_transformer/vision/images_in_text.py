"""From pictures and text to what a model takes that reads both in one sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keras_transformer.utils.types import Tensor

if TYPE_CHECKING:
    from keras_transformer.text.tokenizers.tokenizer import Tokenizer

import numpy as np

from keras_transformer.text.batching import pad_batch
from keras_transformer.vision.errors import ImageError
from keras_transformer.vision.pictures import as_list
from keras_transformer.vision.place_images import mark_images


class ImagesInText:
    """Prepares pictures, and the text in whose midst they stand, for a model such as `models.Kosmos`.

    A picture stands where the text says that an image begins, such as "<image></image>"; before a text that says so nowhere,
    this is put once for each of its pictures. Behind the token that begins an image come places for the image's tokens.

    Args:
        processor: from a list of pictures to float `(B, height, width, channels)`, mostly `ImageProcessor`.
        tokenizer: as of `text`.
        begin_id: int: the token after which an image stands.
        num_image_tokens: int >= 1: the tokens of an image L.
        frame: str: what an image looks like in a text that does not say where its pictures stand.

    Call arguments:
        images: for each text a picture, or a list of pictures, in any form that `processor` takes.
        texts: str, or list of str.
        padding: None, "longest", or the int length of every row.

    Returns:
        Called, {"images": float32 `(B, I, height, width, channels)`, zeros where a text has fewer than the most,
        "token_ids": list of lists}, for `generate`; with padding, "token_ids", int32 `(B, T)`, and "padding_mask", bool
        `(B, T)`, for `fit` and `predict`.

    Raises:
        ImageError: pictures and texts, or the pictures of a text and its places for them, of unequal number; a picture that
            cannot be read.
        TextError: a row is longer than `padding`.
        ValueError: `begin_id` is no token of the tokenizer, or `frame` does not begin one image.

    Example:

    >>> from keras_transformer.text import Characters
    >>> from keras_transformer.vision import ImageProcessor
    >>> tokenizer = Characters("ab[]")
    >>> begin = tokenizer.token_to_id("[")
    >>> prepare = ImagesInText(ImageProcessor((8, 8)), tokenizer, begin, num_image_tokens=2, frame="[]")
    >>> inputs = prepare([np.zeros((5, 5, 3), "uint8")], ["ab"])
    >>> inputs["images"].shape, [tokenizer.id_to_token(index) for index in inputs["token_ids"][0]]
    ((1, 1, 8, 8, 3), ['<s>', '[', ']', ']', ']', 'a', 'b'])

    Reference: the `Kosmos2Processor` of transformers, which takes one image, before the text. Its places hold ids of their
    own; here they repeat the token behind them, since no model reads them.
    """

    def __init__(
        self, processor, tokenizer: Tokenizer, begin_id: int, num_image_tokens: int, frame: str = "<image></image>"
    ) -> None:
        if not 0 <= begin_id < tokenizer.vocabulary_size:
            raise ValueError(f"begin_id must be in [0, {tokenizer.vocabulary_size}). Received: {begin_id}")
        framed = list(tokenizer.encode(frame))
        if framed.count(begin_id) != 1 or len(framed) < 2:
            begin = tokenizer.id_to_token(begin_id)
            raise ValueError(f"frame must hold {begin!r} once, and what ends an image. Received: {frame!r}")
        self.processor = processor
        self.tokenizer = tokenizer
        self.begin_id = begin_id
        self.num_image_tokens = num_image_tokens
        self.frame = frame
        self._end_id = framed[-1]

    def __call__(self, images: Tensor, texts, padding=None):
        if isinstance(texts, str):
            images, texts = [images], [texts]
        if len(images) != len(texts):
            raise ImageError(f"There are pictures for {len(images)} texts, but {len(texts)} texts.")
        images = [as_list(each) for each in images]
        pairs = enumerate(zip(images, texts, strict=True))
        rows = [self._encode(number, *pair) for number, pair in pairs]
        pixels = {"images": self._pixels(images)}
        if padding is None:
            return {**pixels, "token_ids": rows}
        return {**pixels, **pad_batch(rows, self.tokenizer.pad_id, padding)}

    def _encode(self, number, pictures, text):
        """The tokens of one text, with places for its pictures."""
        row = self.tokenizer.encode(text, start=True)
        if self.begin_id not in row:
            row = self.tokenizer.encode(self.frame * len(pictures) + text, start=True)
        row = list(row)
        if row.count(self.begin_id) != len(pictures):
            found = row.count(self.begin_id)
            raise ImageError(f"Text {number} has places for {found} pictures. Received: {len(pictures)}")
        return mark_images(row, self.begin_id, self.num_image_tokens, self._end_id)

    def _pixels(self, images):
        """`(B, I, height, width, channels)` of lists of pictures; all are prepared at once."""
        found = np.asarray(self.processor([picture for row in images for picture in row]))
        counts = np.array([len(row) for row in images])
        pixels = np.zeros((len(images), counts.max(), *found.shape[1:]), found.dtype)
        pixels[np.arange(counts.max()) < counts[:, None]] = found
        return pixels
