"""The base of models that are given pictures."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from keras_transformer.tasks.task_model import TaskModel
from keras_transformer.utils.types import ArrayLike, Path

if TYPE_CHECKING:
    from keras_transformer.vision import ImageProcessor


class ImageModel(TaskModel):
    """Base of functional models of images with an image processor, which is saved in the `.keras` file.

    Attributes:
        processor: `vision.ImageProcessor`, or None. Set it after construction.
    """

    processor: ImageProcessor | None = None

    def _outputs_of(self, images: ArrayLike, batch_size: int) -> list[tuple[Any, tuple[int, int]]]:
        """What the model gives for each image, and the width and height of the image.

        A model for images of any size sees each image in the size that the processor makes of it, without padding; one for
        images of a fixed size sees all in that size. A batch gives for each image what the image gives alone.

        Raises:
            ValueError: the model has no processor.
            ImageError: an image that cannot be read.
        """
        from keras_transformer.vision.processing.image_loading import open_images

        processor, opened = self._processor(), open_images(images)
        groups: dict[tuple[int, ...], list[tuple[int, np.ndarray]]] = {}
        for index, image in enumerate(opened):
            pixels = processor(image)[0]
            groups.setdefault(pixels.shape, []).append((index, pixels))
        found: dict[int, Any] = {}
        for group in groups.values():
            outputs = self.predict(np.stack([pixels for _, pixels in group]), batch_size=batch_size, verbose=0)
            for row, (index, _) in enumerate(group):
                found[index] = keras.tree.map_structure(lambda array, row=row: array[row], outputs)
        return [(found[index], image.size) for index, image in enumerate(opened)]

    def _processor(self):
        if self.processor is None:
            raise ValueError(f"{self.name!r} has no processor: set model.processor to a vision.ImageProcessor.")
        size = tuple(self.inputs[0].shape[1:3])
        if None in size or self.processor.output_size == size:
            return self.processor
        changed = {"size": size, "crop_size": None, "multiple_of": 1}
        return type(self.processor)(**{**self.processor.get_config(), **changed})

    def save_assets(self, directory: Path) -> None:
        """Saves the image processor in the `.keras` file; called by Keras."""
        if self.processor is not None:
            self.processor.save(directory)

    def load_assets(self, directory: Path) -> None:
        """Loads the image processor from the `.keras` file; called by Keras."""
        from keras_transformer.vision import ImageProcessor

        if any(pathlib.Path(directory).iterdir()):
            self.processor = ImageProcessor.load(directory)
