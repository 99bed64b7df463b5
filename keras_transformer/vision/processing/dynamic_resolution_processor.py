"""Image processing at dynamic resolution: images of any size as windows of patches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_transformer.utils.processor_config import is_count, read_processor_config
from keras_transformer.utils.types import ArrayLike, JsonObject, Path
from keras_transformer.vision.errors import ImageError, ImageProcessorError
from keras_transformer.vision.processing import hugging_face
from keras_transformer.vision.processing.image_loading import image_list, named_error, open_image
from keras_transformer.vision.processing.processor import ImageProcessor

_KINDS = tuple(f"{name}ImageProcessor{end}" for name in ("Qwen2VL", "Qwen2_5_VL") for end in ("", "Fast", "Pil"))
# Of OpenAI's CLIP.
_MEAN, _STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
_MOST_PROPORTION = 200


class DynamicResolutionProcessor:
    """Turns images of any size and shape into windows of patches, for `models.Qwen2_5VL` and its image tower.

    Each image is resized to whole tokens, of `merge_size²` patches, at nearly its own size and proportions; its pixels are
    normalized as by `ImageProcessor`. A still image is a video of `num_frames` equal frames.

    Args:
        patch_size: int >= 1. Pixels.
        merge_size: int >= 1: rows and columns of patches in a token.
        window_size: int >= 1: rows and columns of tokens in a window: that of the model.
        num_frames: int >= 1: frames of a patch.
        min_pixels, max_pixels: ints: the pixels of a resized image, at least and at most.
        resample, rescale, mean, std: as for `ImageProcessor`.
        resize: bool. False: images are taken as they are, and must be of whole tokens.

    Attributes:
        window_shape: tuple of ints `(S, F)`: the patches of a window, and the numbers of a patch.

    Call arguments:
        images: one image or a list, as for `ImageProcessor`.

    Returns:
        dict of "patches": float32 `(B, W, S, F)`, the W windows of each image, padded to the most of an image; F numbers of
        a patch: channels, frames, rows and columns; and "patch_grid": int32 `(B, 2)`, rows and columns of patches. See
        `WindowCoordinates` for the order of patches.

    Raises:
        ImageError: an image that cannot be read, that is more than 200 times longer than wide, or that without resizing is
            not of whole tokens; named by path or index.
        ImageProcessorError: an argument out of its range.
        ImportError: Pillow is not installed.

    Example:

    >>> processor = DynamicResolutionProcessor(patch_size=2, window_size=2, min_pixels=16, max_pixels=100)
    >>> inputs = processor([np.zeros((20, 50, 3), "uint8"), np.zeros((8, 8, 3), "uint8")])
    >>> inputs["patches"].shape, inputs["patch_grid"].tolist()
    ((2, 2, 16, 24), [[2, 6], [4, 4]])

    Reference: Wang et al., Qwen2-VL, arXiv 2409.12191, section 2.1 (naive dynamic resolution); Bai et al., Qwen2.5-VL, arXiv
    2502.13923, section 2.1.1. The rule for the size is that of transformers.
    """

    def __init__(
        self,
        patch_size: int = 14,
        merge_size: int = 2,
        window_size: int = 4,
        num_frames: int = 2,
        min_pixels: int = 56 * 56,
        max_pixels: int = 28 * 28 * 1280,
        resample: str = "bicubic",
        rescale: float | None = 1 / 255,
        mean: float | Sequence[float] | None = _MEAN,
        std: float | Sequence[float] | None = _STD,
        resize: bool = True,
    ) -> None:
        counts = {"patch_size": patch_size, "merge_size": merge_size, "window_size": window_size}
        counts |= {"num_frames": num_frames, "min_pixels": min_pixels, "max_pixels": max_pixels}
        for name, value in counts.items():
            if not is_count(value):
                raise ImageProcessorError(f"{name} must be an int of at least 1. Received: {value!r}")
        if max_pixels < min_pixels:
            raise ImageProcessorError(f"max_pixels must be at least min_pixels={min_pixels}. Received: {max_pixels}")
        self.patch_size, self.merge_size, self.window_size = patch_size, merge_size, window_size
        self.num_frames = num_frames
        self.min_pixels, self.max_pixels = min_pixels, max_pixels
        self.resize = bool(resize)
        self._settings: JsonObject = {"resample": resample, "rescale": rescale, "mean": mean, "std": std}
        self._plain = ImageProcessor(size=None, **self._settings)
        self.window_shape = ((window_size * merge_size) ** 2, num_frames * 3 * patch_size**2)

    def __call__(self, images: ArrayLike) -> dict[str, np.ndarray]:
        images = image_list(images)
        if not images:
            raise ImageError("No image was given.")
        rows = [self._named(image, number) for number, image in enumerate(images)]
        patches = np.zeros((len(rows), max(len(windows) for windows, _ in rows), *self.window_shape), "float32")
        for row, (windows, _) in zip(patches, rows, strict=True):
            row[: len(windows)] = windows
        return {"patches": patches, "patch_grid": np.array([grid for _, grid in rows], "int32")}

    def _named(self, image, number):
        try:
            return self._windows(open_image(image, "RGB"))
        except ImageError as error:
            raise named_error(error, image, number) from None

    def _windows(self, image):
        """Returns the windows of a Pillow image, `(W, S, F)`, and its rows and columns of patches."""
        unit, (width, height) = self.patch_size * self.merge_size, image.size
        processor = self._plain
        if self.resize:
            height, width = dynamic_size(height, width, unit, self.min_pixels, self.max_pixels)
            processor = ImageProcessor(size=(height, width), **self._settings)
        elif height % unit or width % unit:
            raise ImageError(f"has {height} x {width} pixels, not multiples of {unit}: set resize=True")
        pixels = processor(image)[0]
        return self._cut(pixels), (height // self.patch_size, width // self.patch_size)

    def _cut(self, pixels):
        """Returns windows from pixels `(height, width, channels)` of whole tokens; zeros fill the windows at the edges."""
        patch, merge, window = self.patch_size, self.merge_size, self.window_size
        side = patch * merge * window
        down, across = (-(-length // side) for length in pixels.shape[:2])
        padded = np.zeros((down * side, across * side, pixels.shape[2]), "float32")
        padded[: pixels.shape[0], : pixels.shape[1]] = pixels
        cut = padded.reshape(down, window, merge, patch, across, window, merge, patch, -1)
        cut = cut.transpose(0, 4, 1, 5, 2, 6, 8, 3, 7)[..., None, :, :]
        repeated = np.broadcast_to(cut, (*cut.shape[:7], self.num_frames, patch, patch))
        return repeated.reshape(down * across, *self.window_shape)

    @classmethod
    def from_huggingface(cls, folder: Path, window_size: int = 4) -> DynamicResolutionProcessor:
        """Reads the image processor of a Hugging Face checkpoint of Qwen2.5-VL.

        Args:
            folder: str or path of a folder with `preprocessor_config.json` or `processor_config.json`.
            window_size: int >= 1: that of the model, which these files do not have.

        Returns:
            A `DynamicResolutionProcessor`.

        Raises:
            ImageProcessorError: no such file, another type, or a setting that is invalid or not supported.
        """
        config = read_processor_config(folder, "image_processor", ImageProcessorError)
        kind = config.get("image_processor_type", _KINDS[0])
        if kind not in _KINDS:
            raise ImageProcessorError(
                f"'{folder}' has an image processor of type {kind!r}. Supported: {', '.join(_KINDS)}."
            )
        plain = {"size": None, "do_resize": False, "crop_size": None, "do_center_crop": False}
        found = hugging_face.arguments({**config, **plain}, "CLIP")
        least, most = _pixels(config)
        return cls(
            config.get("patch_size", 14),
            config.get("merge_size", 2),
            window_size,
            config.get("temporal_patch_size", 2),
            least,
            most,
            resize=config.get("do_resize", True),
            **{name: found[name] for name in ("resample", "rescale", "mean", "std")},
        )


def _pixels(config: dict[str, Any]) -> tuple[int, int]:
    """Returns the least and the most pixels of a config, which has them in "size", or by their names."""
    size = config.get("size") or {}
    if not isinstance(size, dict) or not set(size) <= {"shortest_edge", "longest_edge", "min_pixels", "max_pixels"}:
        raise ImageProcessorError(f"size must be a dict of 'shortest_edge' and 'longest_edge'. Received: {size!r}")
    given = {**size, **{name: config[name] for name in ("min_pixels", "max_pixels") if config.get(name) is not None}}
    return (
        given.get("min_pixels", given.get("shortest_edge", 56 * 56)),
        given.get("max_pixels", given.get("longest_edge", 28 * 28 * 1280)),
    )


def dynamic_size(height: int, width: int, unit: int, min_pixels: int, max_pixels: int) -> tuple[int, int]:
    """Returns height and width that are the nearest multiples of `unit`, or smaller or larger ones within the limits.

    Halves are rounded to even multiples. A side is one `unit` at least, for which `max_pixels` may be exceeded.

    Raises:
        ImageError: one side is more than 200 times the other.

    Example:

    >>> dynamic_size(100, 151, 28, 56 * 56, 28 * 28 * 1280)
    (112, 140)
    >>> dynamic_size(100, 151, 28, 56 * 56, 10000)
    (56, 112)
    """
    if max(height, width) > _MOST_PROPORTION * min(height, width):
        raise ImageError(f"has {height} x {width} pixels; one side may be {_MOST_PROPORTION} times the other at most")
    sides = [round(side / unit) * unit for side in (height, width)]
    if math.prod(sides) > max_pixels:
        shrink = math.sqrt(height * width / max_pixels)
        sides = [max(unit, math.floor(side / shrink / unit) * unit) for side in (height, width)]
    elif math.prod(sides) < min_pixels:
        grow = math.sqrt(min_pixels / (height * width))
        sides = [math.ceil(side * grow / unit) * unit for side in (height, width)]
    return sides[0], sides[1]
