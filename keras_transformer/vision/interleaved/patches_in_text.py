"""Preparation of text with images of any size in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.text.batching import pad_batch
from keras_transformer.utils.types import ArrayLike
from keras_transformer.vision.errors import ImageError
from keras_transformer.vision.interleaved.images_in_text import by_row, marked_tokens
from keras_transformer.vision.processing.image_loading import image_list

if TYPE_CHECKING:
    from keras_transformer.text.tokenizers.tokenizer import Tokenizer
    from keras_transformer.vision.processing.dynamic_resolution_processor import DynamicResolutionProcessor

_VIDEO = "<|video_pad|>"


class PatchesInText:
    """Prepares texts with images of any size in them for a model such as `models.Qwen2_5VL`.

    The text marks the position of each image by the token of an image, as chat templates do; to a text without marks, one
    in its frame is prepended for each of its images. The mark is repeated for each token of its image.

    Args:
        processor: `DynamicResolutionProcessor`.
        tokenizer: a tokenizer of `text`.
        image_id: int: the mark, and the placeholder of each token of an image.
        frame: str: what is prepended for an image: the mark, and the tokens around it.

    Call arguments:
        images: for each text an image, or a list of images, which may be empty, in any form that `processor` accepts.
        texts: str, or list of str.
        padding: None, "longest", or the int length of every row.

    Returns:
        A dict. Without padding: {"patches": float32 `(B, I, W, S, F)` and "patch_grid": int32 `(B, I, 2)`, zeros for texts
        with fewer than I images, "token_ids": list of lists}, for `generate`. With padding: "token_ids", int32 `(B, T)`, and
        "padding_mask", bool `(B, T)`, for `fit` and `predict`.

    Raises:
        ImageError: different numbers of images and texts, or of a text's images and marks; an image that cannot be read; a
            video.
        TextError: a row is longer than `padding`.
        ValueError: `image_id` is not a token of the tokenizer, or `frame` does not contain it once.

    Example:

    >>> from keras_transformer.text import Characters
    >>> from keras_transformer.vision import DynamicResolutionProcessor
    >>> tokenizer = Characters("ab[*]")
    >>> processor = DynamicResolutionProcessor(patch_size=2, window_size=2, min_pixels=16)
    >>> prepare = PatchesInText(processor, tokenizer, tokenizer.token_to_id("*"), frame="[*]")
    >>> inputs = prepare([np.zeros((4, 8, 3), "uint8")], ["ab"])
    >>> inputs["patches"].shape, [tokenizer.id_to_token(index) for index in inputs["token_ids"][0]]
    ((1, 1, 1, 16, 24), ['[', '*', '*', ']', 'a', 'b'])

    Reference: the `Qwen2_5_VLProcessor` of transformers. It has no marks prepended, and also prepares videos.
    """

    def __init__(
        self,
        processor: DynamicResolutionProcessor,
        tokenizer: Tokenizer,
        image_id: int,
        frame: str = "<|vision_start|><|image_pad|><|vision_end|>",
    ) -> None:
        if not 0 <= image_id < tokenizer.vocabulary_size:
            raise ValueError(f"image_id must be in [0, {tokenizer.vocabulary_size}). Received: {image_id}")
        self.processor = processor
        self.tokenizer = tokenizer
        self.image_id = image_id
        self.frame = frame
        if self._encode(frame).count(image_id) != 1:
            raise ValueError(f"frame must contain {tokenizer.id_to_token(image_id)!r} once. Received: {frame!r}")

    def __call__(
        self, images: ArrayLike, texts: str | Sequence[str], padding: str | int | None = None
    ) -> dict[str, Any]:
        if isinstance(texts, str):
            images, texts = [images], [texts]
        if len(images) != len(texts):
            raise ImageError(f"There are images for {len(images)} texts, but {len(texts)} texts.")
        lists = [image_list(each) for each in images]
        pairs = enumerate(zip(lists, texts, strict=True))
        rows = [self._marked(number, len(each), text) for number, (each, text) in pairs]
        arrays = self._by_row(lists)
        counts = arrays["patch_grid"].prod(axis=2) // self.processor.merge_size**2
        rows = [self._repeat_marks(row, iter(each.tolist())) for row, each in zip(rows, counts, strict=True)]
        if padding is None:
            return {**arrays, "token_ids": rows}
        return {**arrays, **pad_batch(rows, self.tokenizer.pad_id, padding)}

    def images_of(self, messages: Any) -> list[Any]:
        """Returns the images in the messages of a chat, in order.

        Args:
            messages: str, or list of dicts with "role" and "content": str, or a list of dicts such as `{"type": "text",
                "text": str}` and `{"type": "image", "image": path, Pillow image or array}`; "path" may stand for "image".

        Returns:
            list of images, for a text that a chat template makes of the messages.

        Raises:
            ImageError: an image is missing, or would have to be downloaded; a video.
        """
        return _images_of(messages)

    def _marked(self, number, count, text):
        """Returns the tokens of a text with a mark for each of its images."""
        if _VIDEO in text:
            raise ImageError(f"Text {number} has a video, {_VIDEO}. Only still images are supported.")
        return marked_tokens(self._encode, text, self.image_id, self.frame * count, count, number)

    def _encode(self, text):
        return list(self.tokenizer.encode(text, allow_special_tokens=True))

    def _repeat_marks(self, row, counts):
        repeated = []
        for token in row:
            repeated += [token] * (next(counts) if token == self.image_id else 1)
        return repeated

    def _by_row(self, lists):
        """Processes lists of images, all at once, into arrays with a row for each list."""
        images = [image for row in lists for image in row]
        # A row without images has one of no size.
        arrays = self.processor(images) if images else self._nothing()
        return {name: by_row(array, [len(row) for row in lists]) for name, array in arrays.items()}

    def _nothing(self):
        shape = (1, 1, *self.processor.window_shape)
        return {"patches": np.zeros(shape, "float32"), "patch_grid": np.zeros((1, 2), "int32")}


def _images_of(messages):
    contents = [each.get("content") for each in messages if isinstance(each, Mapping)]
    parts = [part for content in contents if isinstance(content, list) for part in content if isinstance(part, Mapping)]
    if any(part.get("type") == "video" or "video" in part for part in parts):
        raise ImageError("The messages have a video. Only still images are supported.")
    parts = [part for part in parts if part.get("type") in ("image", "image_url")]
    images = [part.get("image", part.get("path")) for part in parts]
    if any(image is None or (isinstance(image, str) and "://" in image) for image in images):
        raise ImageError("Images of messages must be paths, Pillow images or arrays, under 'image' or 'path'.")
    return images
