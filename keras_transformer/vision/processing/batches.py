"""Batches of processed images. Only `ImageProcessor.dataset` imports this module, which needs Keras."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from keras_transformer.utils.types import ArrayLike
from keras_transformer.vision.errors import ImageError
from keras_transformer.vision.processing.image_loading import image_list

if TYPE_CHECKING:
    from keras_transformer.vision.processing.processor import ImageProcessor


class ImageBatches(keras.utils.PyDataset):
    """Batches of processed images, as returned by `ImageProcessor.dataset`.

    Args:
        processor: an `ImageProcessor`.
        images, labels, batch_size, shuffle, seed, workers: see `ImageProcessor.dataset`.
    """

    def __init__(
        self,
        processor: ImageProcessor,
        images: ArrayLike,
        labels: ArrayLike,
        batch_size: int,
        shuffle: bool,
        seed: int,
        workers: int,
    ) -> None:
        super().__init__(workers=workers, max_queue_size=2 * workers)
        self.processor = processor
        self.images = image_list(images)
        self.labels = _arrays(labels)
        if not self.images:
            raise ImageError("No image was given.")
        for each in keras.tree.flatten(self.labels):
            if each is not None and len(each) != len(self.images):
                raise ImageError(f"There are {len(self.images)} images but {len(each)} labels.")
        if not isinstance(batch_size, int) or batch_size < 1:
            raise ImageError(f"batch_size must be an int of at least 1. Received: {batch_size!r}")
        self.batch_size = batch_size
        self.shuffle = shuffle
        self._generator = np.random.default_rng(seed)
        self._order = self._new_order()

    def _new_order(self):
        return self._generator.permutation(len(self.images)) if self.shuffle else np.arange(len(self.images))

    def __len__(self) -> int:
        return -(-len(self.images) // self.batch_size)

    def __getitem__(self, index: int) -> Any:
        chosen = self._order[index * self.batch_size : (index + 1) * self.batch_size]
        pixels = self.processor([self.images[number] for number in chosen])
        if self.labels is None:
            return pixels
        return pixels, keras.tree.map_structure(lambda each: each[chosen], self.labels)

    def on_epoch_end(self) -> None:
        self._order = self._new_order()


def _arrays(labels: Any) -> Any:
    """Labels as arrays: one, a dict of several, or None."""
    if isinstance(labels, dict):
        return {name: np.asarray(each) for name, each in labels.items()}
    return None if labels is None else np.asarray(labels)
