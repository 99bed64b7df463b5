"""Image processing for images of any size and shape: patches, padded to one number."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from keras_transformer.utils.processor_config import is_count, read_processor_config
from keras_transformer.utils.types import ArrayLike, JsonObject, Path
from keras_transformer.vision.errors import ImageError, ImageProcessorError
from keras_transformer.vision.processing import hugging_face
from keras_transformer.vision.processing.image_loading import image_list, named_error, open_image
from keras_transformer.vision.processing.processor import ImageProcessor

_LARGEST_SCALE, _STEP = 100.0, 1e-5
_KINDS = tuple(f"Siglip2ImageProcessor{ending}" for ending in ("", "Fast", "Pil"))


class NaFlexProcessor:
    """Turns images of any size and shape into patches, for `models.SigLIP2Vision`.

    Each image is resized to the largest whole number of patches, at most `max_num_patches`, that keeps its proportions best;
    its pixels are normalized as by `ImageProcessor`.

    Args:
        patch_size: int >= 1. Pixels.
        max_num_patches: int >= 1. P, the number of patches that every image is padded to.
        resample, rescale, mean, std: as for `ImageProcessor`.
        resize: bool. False: images are taken as they are, and pixels beyond the last whole patch do not count.

    Call arguments:
        images: one image or a list, as for `ImageProcessor`.

    Returns:
        dict of "patches": float32 `(B, P, patch_size · patch_size · 3)`; "patch_grid": int32 `(B, 2)`, rows and columns;
        "patch_mask": bool `(B, P)`.

    Raises:
        ImageError: an image that cannot be read, or without resizing one of more than P patches or of none; named by path or
            index.
        ImageProcessorError: an argument out of its range.
        ImportError: Pillow is not installed.

    Example:

    >>> processor = NaFlexProcessor(patch_size=4, max_num_patches=10)
    >>> inputs = processor([np.zeros((20, 50, 3), "uint8"), np.zeros((9, 9, 3), "uint8")])
    >>> inputs["patches"].shape, inputs["patch_grid"].tolist()
    ((2, 10, 48), [[2, 5], [3, 3]])

    Reference: Tschannen et al., SigLIP 2, arXiv 2502.14786, section 2.4.2; the search for the size as in transformers.
    """

    def __init__(
        self,
        patch_size: int = 16,
        max_num_patches: int = 256,
        resample: str = "bilinear",
        rescale: float | None = 1 / 255,
        mean: float | Sequence[float] | None = 0.5,
        std: float | Sequence[float] | None = 0.5,
        resize: bool = True,
    ) -> None:
        for name, value in (("patch_size", patch_size), ("max_num_patches", max_num_patches)):
            if not is_count(value):
                raise ImageProcessorError(f"{name} must be an int of at least 1. Received: {value!r}")
        self.patch_size = patch_size
        self.max_num_patches = max_num_patches
        self.resize = bool(resize)
        self._settings: JsonObject = {"resample": resample, "rescale": rescale, "mean": mean, "std": std}
        self._plain = ImageProcessor(size=None, **self._settings)

    def __call__(self, images: ArrayLike) -> dict[str, np.ndarray]:
        images = image_list(images)
        if not images:
            raise ImageError("No image was given.")
        rows = [self._named(image, number) for number, image in enumerate(images)]
        grid = np.array([each for _, each in rows], "int32")
        mask = np.arange(self.max_num_patches) < np.prod(grid, axis=1, keepdims=True)
        patches = np.zeros((*mask.shape, rows[0][0].shape[-1]), "float32")
        patches[mask] = np.concatenate([each for each, _ in rows])
        return {"patches": patches, "patch_grid": grid, "patch_mask": mask}

    def _named(self, image, number):
        try:
            return self._patches(open_image(image, "RGB"))
        except ImageError as error:
            raise named_error(error, image, number) from None

    def _patches(self, image):
        """Returns the patches of a Pillow image, `(rows · columns, F)`, and their rows and columns."""
        side, (width, height) = self.patch_size, image.size
        processor = self._plain
        if self.resize:
            rows, columns = best_grid(height, width, side, self.max_num_patches)
            processor = ImageProcessor(size=(rows * side, columns * side), **self._settings)
        else:
            rows, columns = height // side, width // side
            if not 1 <= rows * columns <= self.max_num_patches:
                raise ImageError(f"has {rows} x {columns} patches; from 1 to {self.max_num_patches} are supported")
        pixels = processor(image)[0][: rows * side, : columns * side]
        pixels = pixels.reshape(rows, side, columns, side, -1).transpose(0, 2, 1, 3, 4)
        return pixels.reshape(rows * columns, -1), (rows, columns)

    @classmethod
    def from_huggingface(cls, folder: Path) -> NaFlexProcessor:
        """Reads the image processor of a Hugging Face checkpoint of SigLIP 2.

        Args:
            folder: str or path of a folder with `preprocessor_config.json` or `processor_config.json`.

        Returns:
            A `NaFlexProcessor`.

        Raises:
            ImageProcessorError: no such file, another type, or a setting that is invalid or not supported.
        """
        config = read_processor_config(folder, "image_processor", ImageProcessorError)
        kind = config.get("image_processor_type", _KINDS[0])
        if kind not in _KINDS:
            raise ImageProcessorError(
                f"'{folder}' has an image processor of type {kind!r}. Supported: {', '.join(_KINDS)}."
            )
        found = hugging_face.arguments({"resample": 2, **config, "size": None, "do_resize": False}, "Siglip")
        return cls(
            config.get("patch_size", 16),
            config.get("max_num_patches", 256),
            resize=config.get("do_resize", True),
            **{name: found[name] for name in ("resample", "rescale", "mean", "std")},
        )


def best_grid(height: int, width: int, patch_size: int, max_num_patches: int) -> tuple[int, int]:
    """Rows and columns of patches of the largest image of these proportions, by bisection of its scale.

    >>> best_grid(20, 50, patch_size=4, max_num_patches=10)
    (2, 5)
    """

    def grid(scale):
        rows, columns = (max(1, math.ceil(side * scale / patch_size)) for side in (height, width))
        return rows, columns

    low, high = _STEP / 10, _LARGEST_SCALE
    while high - low >= _STEP:
        middle = (low + high) / 2
        rows, columns = grid(middle)
        low, high = (middle, high) if rows * columns <= max_num_patches else (low, middle)
    return grid(low)
