"""Prompts of an image as arrays, and masks in the size of the image."""

from __future__ import annotations

from typing import Any

import numpy as np

from keras_transformer.utils.types import ArrayLike
from keras_transformer.vision.errors import ImageProcessorError
from keras_transformer.vision.processing.processor import ImageProcessor
from keras_transformer.vision.processing.sizes import resized
from keras_transformer.vision.prompts.point_embedding import LABELS, NOT_A_POINT, PADDING
from keras_transformer.vision.resizing.interpolation import resize_matrix


class PromptProcessor:
    """Turns points, boxes and masks in the pixels of an image into the inputs of a mask decoder, and its masks into masks in
    the size of the image. It needs numpy alone, also for exported files.

    Args:
        processor: `ImageProcessor` that resizes the longest edge and pads to a fixed size.
        mask_size: pair of ints: rows and columns of the decoder's masks. None for a quarter of those of the padded image.

    Raises:
        ImageProcessorError: a processor whose images have no fixed size, or are cropped.

    Example:

    >>> processor = PromptProcessor(ImageProcessor(size={"longest_edge": 16}, pad=(16, 16)))
    >>> inputs = processor((8, 4), points=[[1, 2]], boxes=[0, 0, 3, 7])
    >>> inputs["prompt_points"].tolist(), inputs["prompt_labels"].tolist()
    ([[[[2.0, 4.0], [0.0, 0.0], [6.0, 14.0]]]], [[[1, 2, 3]]])
    >>> processor.masks(np.ones((1, 3, 4, 4)), (8, 4)).shape
    (1, 3, 8, 4)

    Reference: Kirillov et al., Segment Anything, arXiv 2304.02643, appendix A; coordinates and interpolation as in the
    published code and transformers.
    """

    def __init__(self, processor: ImageProcessor, mask_size: tuple[int, int] | None = None) -> None:
        size = processor.output_size
        if size is None or processor.crop_size is not None:
            raise ImageProcessorError(
                "Prompts need images of a fixed size that are not cropped, such as of ImageProcessor(size={'longest_edge': "
                f"1024}}, pad=(1024, 1024)). Received: {processor!r}"
            )
        self.processor = processor
        self.size = size
        self.mask_size = (size[0] // 4, size[1] // 4) if mask_size is None else mask_size

    def __call__(
        self,
        image_size: tuple[int, int],
        points: ArrayLike = None,
        labels: ArrayLike = None,
        boxes: ArrayLike = None,
        masks: ArrayLike = None,
    ) -> dict[str, np.ndarray]:
        """Returns the inputs of a mask decoder for P prompts of one image.

        Args:
            image_size: pair of ints: height and width of the image in pixels.
            points: `(N, 2)` for one prompt, `(P, N, 2)`, or a list of P arrays `(N, 2)`: x and y in pixels of the image.
            labels: int of the shape of the points without the last axis: 1 for foreground, 0 for background; None: all 1.
            boxes: `(4,)` for one prompt, or `(P, 4)`: left, top, right and bottom in pixels of the image.
            masks: float `(rows, columns)` for one prompt, or `(P, rows, columns)`: logits in the size of the decoder's
                masks.

        Returns:
            dict of "prompt_points": float32 `(1, P, N, 2)`, in pixels of the padded image; "prompt_labels": int32
            `(1, P, N)`; "prompt_masks": float32 `(1, P, rows, columns)`; "prompt_has_mask": bool `(1, P)`.

        Raises:
            ValueError: no prompt; points, labels, boxes and masks of different numbers or of another shape.
        """
        scale = self._scale(image_size)
        points, labels = _prompt_points(points, labels)
        boxes = None if boxes is None else _array(boxes, "boxes", (4,))
        masks = None if masks is None else _array(masks, "masks", self.mask_size)
        counts = {len(each) for each in (points, boxes, masks) if each is not None}
        if len(counts) != 1:
            raise ValueError(
                "A prompt is points, a box, a mask, or several of them, as many of each. Received prompts of points, boxes, "
                f"masks: {[None if each is None else len(each) for each in (points, boxes, masks)]}"
            )
        rows = [
            _tokens(
                None if points is None else points[index] * scale,
                None if labels is None else labels[index],
                None if boxes is None else boxes[index].reshape(2, 2) * scale,
            )
            for index in range(counts.pop())
        ]
        length = max(len(row) for _, row in rows)
        return {
            "prompt_points": np.stack([_padded(row, length, 0.0) for row, _ in rows])[None].astype("float32"),
            "prompt_labels": np.stack([_padded(row, length, PADDING) for _, row in rows])[None].astype("int32"),
            "prompt_masks": np.zeros((1, len(rows), *self.mask_size), "float32") if masks is None else masks[None],
            "prompt_has_mask": np.full((1, len(rows)), masks is not None),
        }

    def masks(self, logits: np.ndarray, image_size: tuple[int, int]) -> np.ndarray:
        """Masks in the size of an image: True where the logits, resized bilinearly, are positive.

        Args:
            logits: float `(..., rows, columns)`.
            image_size: pair of ints: height and width of the image in pixels.

        Returns:
            bool `(..., height, width)`.
        """
        resized_size = self._resized(image_size)
        down, across = (
            _enlarging(old, padded, new, final)
            for old, padded, new, final in zip(logits.shape[-2:], self.size, resized_size, image_size, strict=True)
        )
        return down @ logits.astype("float32") @ across.T > 0

    def _resized(self, image_size):
        height, width = image_size
        if self.processor.size is None:
            return height, width
        return resized(height, width, self.processor.size, self.processor.multiple_of)

    def _scale(self, image_size):
        (height, width), (new_height, new_width) = image_size, self._resized(image_size)
        return np.array([new_width / width, new_height / height])


def _enlarging(length: int, padded: int, kept: int, final: int) -> np.ndarray:
    """The matrix from a side of a mask to that of the padded image, without its padding, to that of the image."""
    return resize_matrix(kept, final) @ resize_matrix(length, padded)[:kept]


def _array(values: Any, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Returns `(P, *shape)`; of one prompt without its axis, P is 1."""
    array = np.asarray(values, "float32")
    array = array[None] if array.ndim == len(shape) else array
    if array.shape[1:] != shape or not len(array):
        raise ValueError(f"{name} must be {shape}, or (P, {str(shape)[1:]}. Received shape: {np.shape(values)}")
    return array


def _prompt_points(points: Any, labels: ArrayLike) -> tuple[Any, Any]:
    """Returns lists of P arrays `(N, 2)` and `(N,)`, of real N; or None and None."""
    if points is None:
        if labels is not None:
            raise ValueError("labels are those of points: none were given.")
        return None, None
    one = np.ndim(points[0]) == 1  # One prompt without its axis.
    points = [np.asarray(each, "float64") for each in ([points] if one else points)]
    if labels is None:
        labels = [np.ones(len(each), "int32") for each in points]
    else:
        labels = [np.asarray(each, "int32") for each in ([labels] if one else labels)]
    shapes = [each.shape for each in points], [each.shape for each in labels]
    if any(each.ndim != 2 or each.shape[1] != 2 or not len(each) for each in points) or shapes[1] != [
        shape[:1] for shape in shapes[0]
    ]:
        raise ValueError(f"points must be (N, 2) for each prompt, and labels (N,). Received shapes: {shapes}")
    if any(not np.isin(each, (0, 1)).all() for each in labels):
        raise ValueError("labels of points must be 1 (foreground) or 0 (background).")
    return points, labels


def _tokens(points: Any, labels: ArrayLike, box: Any) -> tuple[np.ndarray, np.ndarray]:
    """Points and labels of one prompt: with a box, its corners behind the points; without, that there is none."""
    places, names = [np.zeros((0, 2))], [np.zeros(0, "int32")]
    if points is not None:
        places, names = [points], [labels]
    if box is not None:
        places.append(box)
        names.append(np.array([LABELS["top_left"], LABELS["bottom_right"]]))
    elif points is not None:
        places.append(np.zeros((1, 2)))
        names.append(np.array([NOT_A_POINT]))
    else:  # A mask alone.
        places.append(np.zeros((1, 2)))
        names.append(np.array([PADDING]))
    return np.concatenate(places), np.concatenate(names)


def _padded(array: np.ndarray, length: int, value: float) -> np.ndarray:
    padding = np.full((length - len(array), *array.shape[1:]), value)
    return np.concatenate([array, padding])
