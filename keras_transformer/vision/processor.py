"""From pictures to the arrays that image models take."""

import json
import os

import numpy as np

from keras_transformer.utils.json_files import read_json
from keras_transformer.utils.processor_config import is_number
from keras_transformer.utils.types import Config, Path, Tensor
from keras_transformer.vision.errors import ImageError, ImageProcessorError
from keras_transformer.vision.pictures import as_list, open_picture, pillow
from keras_transformer.vision.sizes import resized, size_setting

FILE = "image_processor.json"
RESAMPLING = ("nearest", "bilinear", "bicubic", "lanczos", "box", "hamming")
CHANNEL_ORDERS = ("rgb", "bgr", "gray")


class ImageProcessor:
    """Resizes, crops, rescales and normalizes pictures: `(rescale · pixel - mean) / std`.

    The steps come in this order, and each that is None is left out. Pillow resamples, with antialiasing, and rounds to whole
    levels as it does so. Nothing here needs TensorFlow or Keras but `dataset`.

    Args:
        size: what pictures are resized to: `(height, width)`, or a dict of "shortest_edge", of "shortest_edge" and
            "longest_edge", or of "max_height" and "max_width" (the largest size that fits). None: not resized.
        crop_size: `(height, width)` that is cut from the middle, with black around what is smaller; or None.
        resample: "nearest", "bilinear", "bicubic", "lanczos", "box" or "hamming".
        rescale: number that every level, 0 to 255, is multiplied by; or None.
        mean: list of numbers, one for each channel in the order red, green, blue, or one number for all; or None for 0.
        std: likewise, none of them 0; or None for 1.
        channel_order: "rgb", "bgr", or "gray" for one channel. Pictures of any kind are converted: gray ones to three equal
            channels, what is transparent is laid on white.

    Call arguments:
        images: one picture or a list: paths, pictures of Pillow, uint8 arrays `(height, width)` or `(height, width, 1, 3 or
            4)`; or an array of several, `(B, height, width, channels)`.

    Returns:
        Called, a float32 array `(B, height, width, channels)`.

    Raises:
        ImageError: a picture that cannot be read, of another rank or dtype, or without pixels; names it by path or number.
        ImageProcessorError: an argument out of its range.
        ImportError: Pillow is not installed.

    Example:

    >>> processor = ImageProcessor(size={"shortest_edge": 4}, crop_size=(4, 4), mean=0.5, std=0.5)
    >>> pixels = processor(np.full((6, 9, 3), 255, "uint8"))
    >>> pixels.shape, float(pixels.max())
    ((1, 4, 4, 3), 1.0)

    Reference: the image processors of transformers that work with Pillow (ViT, DeiT, BiT, CLIP and what uses these), equal
    but for files with transparent pixels, whose transparency transformers drops instead of laying them on white. Its
    processors that work with torchvision, like Pillow before version 13, differ when they resize: by one level of 255 in
    places, by up to ten in the noise of a picture that changes its proportions; and they put a picture that is an odd number
    of pixels smaller than the crop one pixel further up and left.
    """

    def __init__(
        self,
        size=None,
        crop_size=None,
        resample: str = "bilinear",
        rescale: float = 1 / 255,
        mean=None,
        std=None,
        channel_order: str = "rgb",
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
        self.resample = resample
        self.rescale = rescale
        self.channel_order = channel_order
        self.mean = self._of_channels(mean, "mean")
        self.std = self._of_channels(std, "std")
        if self.std is not None and 0 in np.ravel(self.std).astype("float32"):
            raise ImageProcessorError(f"std must not be 0. Received: {std!r}")

    def _of_channels(self, values, name):
        if values is None or is_number(values):
            return values
        channels = self.num_channels
        if not isinstance(values, (list, tuple)) or len(values) != channels or not all(map(is_number, values)):
            raise ImageProcessorError(f"{name} must be a number, or a list of {channels} numbers. Received: {values!r}")
        return list(values)

    @property
    def num_channels(self):
        """3, or 1 for gray pictures."""
        return 1 if self.channel_order == "gray" else 3

    @property
    def output_size(self):
        """Pair of height and width where all pictures come out alike, else None."""
        exact = self.crop_size or (self.size if "height" in (self.size or {}) else None)
        return None if exact is None else (exact["height"], exact["width"])

    def __call__(self, images: Tensor):
        images = as_list(images)
        if not images:
            raise ImageError("No picture was given.")
        arrays = [self._named(image, number) for number, image in enumerate(images)]
        for number, array in enumerate(arrays):
            if array.shape != arrays[0].shape:
                sizes = " and ".join(f"{each.shape[0]} x {each.shape[1]}" for each in (arrays[0], array))
                raise ImageError(
                    f"Pictures 0 and {number} come out as {sizes} pixels, which make no batch: set crop_size, or an exact "
                    "size."
                )
        return np.stack(arrays)

    def _named(self, image, number):
        try:
            return self._process(image)
        except ImageError as error:
            name = f"'{image}'" if isinstance(image, (str, os.PathLike)) else f"Picture {number}"
            raise ImageError(f"{name} {error}.") from None

    def _process(self, image):
        """float32 `(height, width, channels)` of one picture."""
        picture = open_picture(image, "L" if self.channel_order == "gray" else "RGB")
        if self.size is not None:
            picture = self._resize(picture)
        pixels = np.asarray(picture).reshape(picture.size[1], picture.size[0], self.num_channels)
        if self.crop_size is not None:
            pixels = center_crop(pixels, self.crop_size["height"], self.crop_size["width"])
        return self._normalize(pixels)

    def _resize(self, picture):
        try:
            height, width = resized(picture.size[1], picture.size[0], self.size)
        except ImageError as error:
            raise ImageError(f"is out of range: {error}") from None
        return picture.resize((width, height), getattr(pillow().Image.Resampling, self.resample.upper()))

    def _normalize(self, pixels):
        # Multiplied in float64 and rounded once, as the original does.
        pixels = pixels.astype("float64") * self.rescale if self.rescale is not None else pixels
        pixels = pixels.astype("float32")
        if self.mean is not None:
            pixels = pixels - np.asarray(self.mean, "float32")
        if self.std is not None:
            pixels = pixels / np.asarray(self.std, "float32")
        return np.ascontiguousarray(pixels[..., ::-1]) if self.channel_order == "bgr" else pixels

    def dataset(
        self,
        images: Tensor,
        labels: Tensor | None = None,
        *,
        batch_size: int = 32,
        shuffle: bool = False,
        seed: int = 0,
        workers: int = 1,
    ):
        """Pictures, read and prepared batch by batch, for `fit`, `evaluate` and `predict` on any backend.

        Args:
            images: list of paths, pictures of Pillow or arrays; or an array `(n, height, width, channels)`.
            labels: array or list of as many, or None.
            batch_size: int >= 1.
            shuffle: bool. Whether pictures come in another order in every epoch.
            seed: int. Of that order.
            workers: int >= 1. Threads that prepare batches ahead of the model.

        Returns:
            A `keras.utils.PyDataset` of float32 `(B, height, width, channels)`, or of pairs with labels `(B, ...)`.

        Raises:
            ImageError: no picture, or another number of labels.
        """
        from keras_transformer.vision.batches import ImageBatches

        return ImageBatches(self, images, labels, batch_size, shuffle, seed, workers)

    @classmethod
    def from_huggingface(cls, folder: Path):
        """Reads how a checkpoint of Hugging Face wants its pictures.

        Args:
            folder: str or path that holds `preprocessor_config.json`, or a `processor_config.json` with an
                "image_processor". The kinds are those of ViT (Swin), DeiT, BiT (DINOv2), CLIP (Kosmos-2) and SigLIP.

        Returns:
            An `ImageProcessor`.

        Raises:
            ImageProcessorError: no such file, another kind, or a setting that is wrong or not done here.
        """
        from keras_transformer.vision.hugging_face import settings

        return cls(**settings(folder))

    def to_huggingface(self, folder: Path):
        """Writes a `preprocessor_config.json` that transformers, and `from_huggingface`, read.

        Args:
            folder: str or path; made if there is none.

        Raises:
            ImageProcessorError: blue comes first, or pictures are gray, which no such file says.
        """
        from keras_transformer.vision.hugging_face import write

        write(self, folder)

    def get_config(self) -> Config:
        """dict of the arguments."""
        return {
            "size": self.size,
            "crop_size": self.crop_size,
            "resample": self.resample,
            "rescale": self.rescale,
            "mean": self.mean,
            "std": self.std,
            "channel_order": self.channel_order,
        }

    @classmethod
    def from_config(cls, config: Config):
        """An `ImageProcessor` from what `get_config` gives.

        Raises:
            ImageProcessorError: an unknown setting, or one out of its range.
        """
        try:
            return cls(**config)
        except TypeError as error:
            raise ImageProcessorError(f"Not the settings of an image processor: {error}.") from None

    def save(self, folder: Path):
        """Writes `image_processor.json` into a folder, which is made if there is none.

        Args:
            folder: str or path.
        """
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, FILE), "w", encoding="utf-8") as file:
            json.dump(self.get_config(), file, indent=2)

    @classmethod
    def load(cls, folder: Path):
        """Reads what `save` has written.

        Args:
            folder: str or path.

        Returns:
            An `ImageProcessor`.

        Raises:
            ImageProcessorError: the file cannot be read, or does not hold what it should.
        """
        return cls.from_config(read_json(os.path.join(folder, FILE), ImageProcessorError))

    def __eq__(self, other):
        return isinstance(other, ImageProcessor) and self.get_config() == other.get_config()

    __hash__ = None

    def __repr__(self):
        return f"ImageProcessor({', '.join(f'{name}={value!r}' for name, value in self.get_config().items())})"


def center_crop(pixels: Tensor, height: int, width: int):
    """The middle of an array `(H, W, C)`, with zeros around it where it is smaller.

    Example:

    >>> center_crop(np.arange(5).reshape(1, 5, 1), 1, 2)[0, :, 0].tolist()
    [1, 2]
    >>> center_crop(np.arange(1, 4).reshape(1, 3, 1), 1, 6)[0, :, 0].tolist()
    [0, 0, 1, 2, 3, 0]
    """
    top, left = (pixels.shape[0] - height) // 2, (pixels.shape[1] - width) // 2
    inside = pixels[max(top, 0) : top + height, max(left, 0) : left + width]
    if inside.shape[:2] == (height, width):
        return inside
    result = np.zeros((height, width, pixels.shape[2]), pixels.dtype)
    top, left = max(-top, 0), max(-left, 0)
    result[top : top + inside.shape[0], left : left + inside.shape[1]] = inside
    return result
