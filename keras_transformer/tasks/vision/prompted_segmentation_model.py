"""A functional model of masks of what a prompt selects in an image."""

from __future__ import annotations

from typing import NamedTuple

import keras
import numpy as np
from keras import ops

from keras_transformer.tasks.vision.image_model import ImageModel
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import ArrayLike

# The name of the part from features and prompts to masks.
DECODER = "prompt_decoder"


class EncodedImage(NamedTuple):
    """The features of an image, for any number of prompts.

    Attributes:
        features: float32 `(1, rows, columns, C)`.
        size: pair of ints: height and width of the image in pixels.

    Example:

    >>> EncodedImage(np.zeros((1, 4, 4, 8)), (30, 40)).size
    (30, 40)
    """

    features: np.ndarray
    size: tuple[int, int]


class PromptedMasks(NamedTuple):
    """The masks of P prompts of an image.

    Attributes:
        masks: bool `(P, K, height, width)`, in the size of the image: K masks of each prompt.
        scores: float32 `(P, K)`: the estimated intersection over union of each mask.
        logits: float32 `(P, K, rows, columns)`: the masks before they are resized, which may be prompts again.

    Example:

    >>> PromptedMasks(np.ones((1, 3, 8, 8), bool), np.array([[0.5, 0.9, 0.7]]), np.ones((1, 3, 4, 4))).best().shape
    (1, 8, 8)
    """

    masks: np.ndarray
    scores: np.ndarray
    logits: np.ndarray

    def best(self) -> np.ndarray:
        """The mask of each prompt with the largest score, bool `(P, height, width)`."""
        return self.masks[np.arange(len(self.scores)), self.scores.argmax(axis=1)]


@serializable
class PromptedSegmentationModel(ImageModel):
    """Functional model from images and prompts to masks, as `tasks.PromptedSegmenter` builds it.

    It saves its image processor in its `.keras` file.

    Args:
        inputs: dict of symbolic inputs: "images", "prompt_points", "prompt_labels", "prompt_masks" and "prompt_has_mask".
        outputs: dict of symbolic outputs: "masks" `(B, P, 1 + M, rows, columns)` and "scores" `(B, P, 1 + M)`.
        name: str.

    Attributes:
        processor: `vision.ImageProcessor` that resizes the longest edge and pads to the size of the model, or None. Set it
            after construction.

    Returns:
        What `keras.Model` with these inputs and outputs returns.

    Example:

    >>> from keras_transformer import models, tasks, vision
    >>> backbone = models.SAM(models.SAMSize(1, 8, 2, 16, (0,)), patch_size=4, image_size=16, output_dim=16)
    >>> model = tasks.PromptedSegmenter(backbone, 3, tasks.MaskDecoderSize(1, 2, 24))
    >>> model.processor = vision.ImageProcessor(size={"longest_edge": 16}, pad=(16, 16))
    >>> encoded = model.encode(np.zeros((40, 30, 3), "uint8"))
    >>> model.segment(encoded, points=[[5, 7], [20, 30]], labels=[1, 0]).masks.shape
    (1, 3, 40, 30)
    >>> model.segment(encoded, boxes=[[0, 0, 9, 9], [5, 5, 20, 30]], multimask=False).masks.shape
    (2, 1, 40, 30)
    """

    @property
    def image_encoder(self) -> keras.Model:
        """`keras.Model`: "images" to features `(B, rows, columns, C)`."""
        return next(layer for layer in self.layers if isinstance(layer, keras.Model) and layer.name != DECODER)

    @property
    def prompt_decoder(self) -> keras.Model:
        """`keras.Model`: "features", `(B, rows, columns, C)`, and the prompts, to {"masks", "scores"}."""
        return self.get_layer(DECODER)

    def encode(self, image: ArrayLike) -> EncodedImage:
        """Computes the features of an image, for `segment`.

        Args:
            image: one image, as of `vision.ImageProcessor`.

        Returns:
            `EncodedImage`.

        Raises:
            ValueError: the model has no processor, or one of another size; more than one image.
            ImageError: an image that cannot be read.
        """
        from keras_transformer.vision.processing.image_loading import open_images

        prompts, opened = self._prompts(), open_images(image)
        if len(opened) != 1:
            raise ValueError(f"One image is encoded at a time. Received: {len(opened)}")
        features = self.image_encoder(prompts.processor(opened[0]), training=False)
        return EncodedImage(ops.convert_to_numpy(features), opened[0].size[::-1])

    def segment(
        self,
        image: ArrayLike | EncodedImage,
        points: ArrayLike = None,
        labels: ArrayLike = None,
        boxes: ArrayLike = None,
        masks: ArrayLike = None,
        *,
        multimask: bool = True,
    ) -> PromptedMasks:
        """Finds what prompts select in an image. Several prompts give what each gives alone.

        Args:
            image: one image, as of `vision.ImageProcessor`; or an `EncodedImage`, which is not encoded again.
            points: `(N, 2)` for one prompt, `(P, N, 2)`, or a list of P arrays `(N, 2)`: x and y in pixels of the image.
            labels: int of the shape of the points without the last axis: 1 for foreground, 0 for background; None: all 1.
            boxes: `(4,)` for one prompt, or `(P, 4)`: left, top, right and bottom in pixels of the image.
            masks: float `(rows, columns)` for one prompt, or `(P, rows, columns)`: rough masks, such as the `logits` of an
                earlier answer.
            multimask: bool. Whether to return the M meanings of an ambiguous prompt, such as one point, instead of the one
                mask of a clear prompt.

        Returns:
            `PromptedMasks`.

        Raises:
            ValueError: no prompt; points, labels, boxes and masks of different numbers or of another shape; see `encode`.
            ImageError: an image that cannot be read.
        """
        encoded = image if isinstance(image, EncodedImage) else self.encode(image)
        prompts = self._prompts()
        inputs = prompts(encoded.size, points, labels, boxes, masks)
        outputs = self.prompt_decoder({"features": encoded.features, **inputs}, training=False)
        kept = slice(1, None) if multimask else slice(0, 1)
        logits, scores = (ops.convert_to_numpy(outputs[name])[0, :, kept] for name in ("masks", "scores"))
        return PromptedMasks(prompts.masks(logits, encoded.size), scores, logits)

    def _prompts(self):
        from keras_transformer.vision import PromptProcessor

        size = tuple(self.image_encoder.input.shape[1:3])
        if self.processor is None or self.processor.output_size != size:
            raise ValueError(
                f"{self.name!r} needs a processor that makes images of {size[0]} x {size[1]} pixels: set model.processor to "
                f"a vision.ImageProcessor(size={{'longest_edge': {max(size)}}}, pad={size}). It has: {self.processor!r}"
            )
        return PromptProcessor(self.processor, tuple(self.output["masks"].shape[-2:]))
