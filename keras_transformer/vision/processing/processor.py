"""Image processing: from image files to the inputs of image models."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.utils.json_files import read_json
from keras_transformer.utils.processor_config import is_count, is_number
from keras_transformer.utils.types import ArrayLike, Config, Path
from keras_transformer.vision.errors import ImageError, ImageProcessorError
from keras_transformer.vision.processing.image_loading import image_list, named_error, open_image, pillow
from keras_transformer.vision.processing.sizes import center_crop, padded, resized, size_setting

if TYPE_CHECKING:
    from keras_transformer.vision.processing.batches import ImageBatches

FILE = "image_processor.json"
RESAMPLING = ("nearest", "bilinear", "bicubic", "lanczos", "box", "hamming")
CHANNEL_ORDERS = ("rgb", "bgr", "gray")


class ImageProcessor:
    """Resizes, crops, rescales and normalizes images: `(rescale · pixel - mean) / std`.

    The steps are in this order; those set to None are skipped. Pillow resamples, with antialiasing. Only `dataset` needs
    Keras.

    Args:
        size: the size after resizing: `(height, width)`, or a dict of "shortest_edge", of "shortest_edge" and
            "longest_edge", of "longest_edge", or of "max_height" and "max_width" (the largest size within). None: no
            resizing.
        crop_size: `(height, width)` of a center crop, with black padding for smaller images; or None.
        resample: "nearest", "bilinear", "bicubic", "lanczos", "box" or "hamming". Default "bilinear".
        rescale: factor of every level, 0 to 255; or None. Default 1/255.
        mean: list of numbers, one for each channel in the order red, green, blue, or one number for all; or None for 0.
        std: likewise, none of them 0; or None for 1.
        channel_order: "rgb", "bgr", or "gray" for one channel. Images of other modes are converted: gray ones to three
            equal channels; transparent pixels are blended with white. Default "rgb".
        round_levels: bool. Whether resizing rounds to integer levels from 0 to 255, as Pillow and most processors do; False
            for real ones, as DINOv3. Default True.
        multiple_of: int >= 1. A size that keeps proportions is rounded down to multiples of this, as for YOLOS. Default 1.
        pad: bool, or `(height, width)`. Whether images of different sizes are padded to the largest of the batch, or to this
            size, with zeros at the bottom and on the right, after all other steps; otherwise they are an error. Default
            False.

    Call arguments:
        images: one image or a list: paths, Pillow images, uint8 arrays `(height, width)` or `(height, width, 1, 3 or 4)`;
            or an array of several, `(B, height, width, channels)`.

    Returns:
        A float32 array `(B, height, width, channels)`.

    Raises:
        ImageError: an image that cannot be read, of another rank or dtype, without pixels, or larger than `pad`; named by
            path or index.
        ImageProcessorError: an argument out of its range.
        ImportError: Pillow is not installed.

    Example:

    >>> processor = ImageProcessor(size={"shortest_edge": 4}, crop_size=(4, 4), mean=0.5, std=0.5)
    >>> pixels = processor(np.full((6, 9, 3), 255, "uint8"))
    >>> pixels.shape, float(pixels.max())
    ((1, 4, 4, 3), 1.0)

    Reference: the Pillow image processors of transformers (ViT, DeiT, BiT, CLIP, YOLOS and those based on them). Results are
    equal except for files with transparent pixels, whose transparency transformers drops instead of blending with white. Its
    torchvision processors, like Pillow before version 13, differ in resizing: by one level of 255 at some pixels, by up to
    ten for images of noise whose proportions change; and images an odd number of pixels smaller than the crop are one pixel
    further up and left. That of DINOv3, which does not round, is equal within rounding.
    """

    def __init__(
        self,
        size: Sequence[int] | Mapping[str, int] | None = None,
        crop_size: Sequence[int] | Mapping[str, int] | None = None,
        resample: str = "bilinear",
        rescale: float | None = 1 / 255,
        mean: float | Sequence[float] | None = None,
        std: float | Sequence[float] | None = None,
        channel_order: str = "rgb",
        round_levels: bool = True,
        multiple_of: int = 1,
        pad: bool | Sequence[int] = False,
    ) -> None:
        self.size = size_setting(size)
        self.crop_size = size_setting(crop_size, "crop_size")
        if self.crop_size is not None and "height" not in self.crop_size:
            raise ImageProcessorError(f"crop_size must be (height, width). Received: {crop_size!r}")
        if resample not in RESAMPLING:
            raise ImageProcessorError(f"resample must be one of {', '.join(RESAMPLING)}. Received: {resample!r}")
        if channel_order not in CHANNEL_ORDERS:
            raise ImageProcessorError(
                f"channel_order must be one of {', '.join(CHANNEL_ORDERS)}. Received: {channel_order!r}"
            )
        if rescale is not None and not is_number(rescale):
            raise ImageProcessorError(f"rescale must be a number or None. Received: {rescale!r}")
        if not is_count(multiple_of):
            raise ImageProcessorError(f"multiple_of must be an int of at least 1. Received: {multiple_of!r}")
        self.multiple_of = multiple_of
        self.pad = bool(pad) if isinstance(pad, (bool, int)) else _pair(pad)
        self.resample = resample
        self.rescale = rescale
        self.channel_order = channel_order
        self.round_levels = round_levels
        self.mean = self._of_channels(mean, "mean")
        self.std = self._of_channels(std, "std")
        if self.std is not None and 0 in np.ravel(self.std).astype("float32"):
            raise ImageProcessorError(f"std must not be 0. Received: {std!r}")

    @property
    def normalization(self) -> dict[str, list[float] | float]:
        """dict of "range", "mean" and "std": the model takes `(level - mean) / std` of levels in that range, for
        `ExportOptions(metadata={"inputs": {"images": processor.normalization}})`.

        >>> ImageProcessor(mean=[0.5, 0.5, 0.5], std=0.25, rescale=0.01).normalization
        {'range': [0, 255], 'mean': [50.0, 50.0, 50.0], 'std': 25.0}
        """
        scale = 1.0 if self.rescale is None else self.rescale

        def in_levels(values):
            return values / scale if is_number(values) else [value / scale for value in values]

        mean, std = (0.0 if self.mean is None else self.mean), (1.0 if self.std is None else self.std)
        return {"range": [0, 255], "mean": in_levels(mean), "std": in_levels(std)}

    def _of_channels(self, values, name):
        if values is None or is_number(values):
            return values
        channels = self.num_channels
        if not isinstance(values, (list, tuple)) or len(values) != channels or not all(map(is_number, values)):
            raise ImageProcessorError(f"{name} must be a number, or a list of {channels} numbers. Received: {values!r}")
        return list(values)

    @property
    def num_channels(self) -> int:
        """3, or 1 for gray images."""
        return 1 if self.channel_order == "gray" else 3

    @property
    def output_size(self) -> tuple[int, int] | None:
        """`(height, width)` if all images get the same size, else None."""
        if isinstance(self.pad, tuple):
            return self.pad
        exact = self.crop_size or (self.size if "height" in (self.size or {}) else None)
        return None if exact is None else (exact["height"], exact["width"])

    def __call__(self, images: ArrayLike) -> np.ndarray:
        images = image_list(images)
        if not images:
            raise ImageError("No image was given.")
        arrays = [self._named(image, number) for number, image in enumerate(images)]
        if self.pad:
            arrays = padded(arrays, self.pad if isinstance(self.pad, tuple) else None)
        for number, array in enumerate(arrays):
            if array.shape != arrays[0].shape:
                sizes = " and ".join(f"{each.shape[0]} x {each.shape[1]}" for each in (arrays[0], array))
                raise ImageError(
                    f"Images 0 and {number} have {sizes} pixels after resizing and cannot be batched: set crop_size, an "
                    "exact size, or pad=True."
                )
        return np.stack(arrays)

    def _named(self, image, number):
        try:
            return self._process(image)
        except ImageError as error:
            raise named_error(error, image, number) from None

    def _process(self, image):
        """Returns an image as float32 `(height, width, channels)`."""
        image = open_image(image, "L" if self.channel_order == "gray" else "RGB")
        bands = [image] if self.round_levels or self.size is None else [band.convert("F") for band in image.split()]
        if self.size is not None:
            bands = [self._resize(band, self.size) for band in bands]
        width, height = bands[0].size
        pixels = np.stack(bands, axis=-1).reshape(height, width, self.num_channels)
        if self.crop_size is not None:
            pixels = center_crop(pixels, self.crop_size["height"], self.crop_size["width"])
        if isinstance(self.pad, tuple) and (pixels.shape[0] > self.pad[0] or pixels.shape[1] > self.pad[1]):
            raise ImageError(f"has {pixels.shape[0]} x {pixels.shape[1]} pixels; it is padded to {self.pad}")
        return self._normalize(pixels)

    def _resize(self, image, size):
        try:
            height, width = resized(image.size[1], image.size[0], size, self.multiple_of)
        except ImageError as error:
            raise ImageError(f"is out of range: {error}") from None
        return image.resize((width, height), getattr(pillow().Image.Resampling, self.resample.upper()))

    def _normalize(self, pixels):
        # Computed in float64 and rounded once, as in transformers.
        pixels = pixels.astype("float64") * self.rescale if self.rescale is not None else pixels
        pixels = pixels.astype("float32")
        if self.mean is not None:
            pixels = pixels - np.asarray(self.mean, "float32")
        if self.std is not None:
            pixels = pixels / np.asarray(self.std, "float32")
        return np.ascontiguousarray(pixels[..., ::-1]) if self.channel_order == "bgr" else pixels

    def dataset(
        self,
        images: ArrayLike,
        labels: ArrayLike = None,
        *,
        batch_size: int = 32,
        shuffle: bool = False,
        seed: int = 0,
        workers: int = 1,
    ) -> ImageBatches:
        """Returns a data set that reads and processes images batch by batch, for `fit`, `evaluate` and `predict`.

        Args:
            images: list of paths, Pillow images or arrays; or an array `(n, height, width, channels)`.
            labels: array or list of the same length, a dict of these, such as `box_targets` returns, or None.
            batch_size: int >= 1. Default 32.
            shuffle: bool. Whether to shuffle in every epoch. Default False.
            seed: int. Seed of the shuffling.
            workers: int >= 1. Number of threads that prepare batches in advance. Default 1.

        Returns:
            A `keras.utils.PyDataset` of float32 `(B, height, width, channels)`, or of pairs with labels `(B, ...)`.

        Raises:
            ImageError: no images, or a different number of labels.
        """
        from keras_transformer.vision.processing.batches import ImageBatches

        return ImageBatches(self, images, labels, batch_size, shuffle, seed, workers)

    @classmethod
    def from_huggingface(cls, folder: Path) -> ImageProcessor:
        """Reads the image processor of a Hugging Face checkpoint.

        Args:
            folder: str or path of a folder with `preprocessor_config.json`, or with a `processor_config.json` that has an
                "image_processor". Supported are those of ViT (Swin), DeiT, BiT (DINOv2), CLIP (Kosmos-2), SigLIP, DINOv3 and
                YOLOS, without annotations; SAM; and SegFormer, without label maps, for which `mask_targets` is.

        Returns:
            An `ImageProcessor`.

        Raises:
            ImageProcessorError: no such file, another type, or a setting that is invalid or not supported.
        """
        from keras_transformer.vision.processing.hugging_face import settings

        return cls(**settings(folder))

    def to_huggingface(self, folder: Path) -> None:
        """Writes a `preprocessor_config.json` for transformers and `from_huggingface`.

        Args:
            folder: str or path, created if missing.

        Raises:
            ImageProcessorError: a channel order other than "rgb", which the file does not support.
        """
        from keras_transformer.vision.processing.hugging_face import write

        write(self, folder)

    def get_config(self) -> Config:
        """Returns the arguments of the constructor."""
        return {
            "size": self.size,
            "crop_size": self.crop_size,
            "resample": self.resample,
            "rescale": self.rescale,
            "mean": self.mean,
            "std": self.std,
            "channel_order": self.channel_order,
            "round_levels": self.round_levels,
            "multiple_of": self.multiple_of,
            "pad": self.pad,
        }

    @classmethod
    def from_config(cls, config: Config) -> ImageProcessor:
        """Creates an `ImageProcessor` from a dict of `get_config`.

        Raises:
            ImageProcessorError: an unknown setting, or one out of its range.
        """
        try:
            return cls(**config)
        except TypeError as error:
            raise ImageProcessorError(f"Invalid settings of an image processor: {error}.") from None

    def save(self, folder: Path) -> None:
        """Writes `image_processor.json` to a folder, which is created if missing.

        Args:
            folder: str or path.
        """
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, FILE), "w", encoding="utf-8") as file:
            json.dump(self.get_config(), file, indent=2)

    @classmethod
    def load(cls, folder: Path) -> ImageProcessor:
        """Reads the file of `save`.

        Args:
            folder: str or path.

        Returns:
            An `ImageProcessor`.

        Raises:
            ImageProcessorError: the file cannot be read, or its contents are invalid.
        """
        return cls.from_config(read_json(os.path.join(folder, FILE), ImageProcessorError))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ImageProcessor) and self.get_config() == other.get_config()

    __hash__ = None  # type: ignore[assignment]  # As for any mutable object with __eq__.

    def __repr__(self) -> str:
        return f"ImageProcessor({', '.join(f'{name}={value!r}' for name, value in self.get_config().items())})"


def _pair(pad: Any) -> tuple[int, int]:
    """Returns the size of a `pad` that is not a bool."""
    try:
        size = size_setting(dict(pad) if isinstance(pad, Mapping) else tuple(pad), "pad") or {}
        return size["height"], size["width"]
    except (TypeError, KeyError):
        raise ImageProcessorError(f"pad must be True, False or (height, width). Received: {pad!r}") from None
