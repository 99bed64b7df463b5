"""Preparation of images and prompts for models that read the images first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.text.batching import pad_batch
from keras_transformer.utils.types import ArrayLike
from keras_transformer.vision.errors import ImageError
from keras_transformer.vision.interleaved.images_in_text import stacked_pixels
from keras_transformer.vision.processing.image_loading import image_list

if TYPE_CHECKING:
    from keras_transformer.text.tokenizers.tokenizer import Tokenizer


class ImagesBeforeText:
    """Prepares images with prompts, and with answers for training, for a model such as `models.PaliGemma`.

    A row is the placeholders of its images, the start of a text, the prompt, and a new line; then the answer and its end.

    Args:
        processor: function of a list of images that returns float `(B, height, width, channels)`, such as an
            `ImageProcessor`.
        tokenizer: a tokenizer of `text`.
        image_id: int: the placeholder of each token of an image.
        num_image_tokens: int >= 1: the number of tokens of an image, L.

    Call arguments:
        images: for each prompt an image, or a list of images, in any form that `processor` accepts.
        texts: str, or list of str: the prompts.
        answers: str, or list of str, of the same number; or None.
        padding: None, "longest", or the int length of every row. Required with answers.

    Returns:
        A dict. Without padding: {"images": float32 `(B, I, height, width, channels)`, zeros for rows with fewer than I
        images, "token_ids": list of lists}, for `generate`. With padding: "token_ids", int32 `(B, T)`, "padding_mask" and
        "prefix_mask", bool `(B, T)`, for `fit` and `predict`.

    Raises:
        ImageError: different numbers of images, prompts and answers; an image that cannot be read.
        TextError: a row is longer than `padding`.
        ValueError: `image_id` is not a token of the tokenizer; answers without padding.

    Example:

    >>> from keras_transformer.text import Characters
    >>> from keras_transformer.vision import ImageProcessor
    >>> tokenizer = Characters("ab[\\n")
    >>> image = tokenizer.token_to_id("[")
    >>> prepare = ImagesBeforeText(ImageProcessor((8, 8)), tokenizer, image, num_image_tokens=2)
    >>> inputs = prepare([np.zeros((5, 5, 3), "uint8")], ["ab"])
    >>> [tokenizer.id_to_token(index) for index in inputs["token_ids"][0]]
    ['[', '[', '<s>', 'a', 'b', '\\n']

    Reference: the `PaliGemmaProcessor` of transformers.
    """

    def __init__(
        self,
        processor: Callable[[list], ArrayLike],
        tokenizer: Tokenizer,
        image_id: int,
        num_image_tokens: int,
    ) -> None:
        if not 0 <= image_id < tokenizer.vocabulary_size:
            raise ValueError(f"image_id must be in [0, {tokenizer.vocabulary_size}). Received: {image_id}")
        self.processor = processor
        self.tokenizer = tokenizer
        self.image_id = image_id
        self.num_image_tokens = num_image_tokens

    def __call__(
        self,
        images: ArrayLike,
        texts: str | Sequence[str],
        answers: str | Sequence[str] | None = None,
        padding: str | int | None = None,
    ) -> dict[str, Any]:
        if isinstance(texts, str):
            images, texts = [images], [texts]
            answers = [answers] if isinstance(answers, str) else answers
        if not len(images) == len(texts) == len(texts if answers is None else answers):
            raise ImageError(
                f"There are images for {len(images)} prompts, but {len(texts)} prompts"
                + (f" and {len(answers)} answers." if answers is not None else ".")
            )
        if answers is not None and padding is None:
            raise ValueError("answers are for training, which needs padding: 'longest', or a length.")
        lists = [image_list(each) for each in images]
        rows = [self._prompt(len(each), text) for each, text in zip(lists, texts, strict=True)]
        lengths = np.array([[len(row)] for row in rows])
        pixels = {"images": stacked_pixels(self.processor, lists)}
        if padding is None:
            return {**pixels, "token_ids": rows}
        if answers is not None:
            ends = [list(self.tokenizer.encode(answer, end=True)) for answer in answers]
            rows = [[*row, *end] for row, end in zip(rows, ends, strict=True)]
        batch = pad_batch(rows, self.tokenizer.pad_id, padding)
        return {**pixels, **batch, "prefix_mask": np.arange(batch["token_ids"].shape[1]) < lengths}

    def _prompt(self, count, text):
        """Returns the tokens of a prompt behind those of so many images."""
        return [self.image_id] * (count * self.num_image_tokens) + list(self.tokenizer.encode(f"{text}\n", start=True))
