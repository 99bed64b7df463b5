"""Conversion of `ImageProcessor` settings from and to the files of transformers."""

from __future__ import annotations

import json
import os
import pathlib
from typing import TYPE_CHECKING, Any

from keras_transformer.utils.json_files import read_json
from keras_transformer.utils.processor_config import FILE, is_count, is_number, read_processor_config
from keras_transformer.utils.types import JsonObject, Path
from keras_transformer.vision.errors import ImageProcessorError

if TYPE_CHECKING:
    from keras_transformer.vision.processing.processor import ImageProcessor

# Pillow's filters in the order of their numbers.
_FILTERS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
_HALF = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
_CLIP = {
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
    "size": {"shortest_edge": 224},
    "crop_size": {"height": 224, "width": 224},
    "resample": 3,
    "do_center_crop": True,
}
_IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
_SQUARE = {"size": {"height": 224, "width": 224}, "resample": 2}
# Default settings by kind of processor.
DEFAULTS = {
    "ViT": {**_HALF, **_SQUARE},
    "DeiT": {
        **_HALF,
        "size": {"height": 256, "width": 256},
        "crop_size": {"height": 224, "width": 224},
        "resample": 3,
        "do_center_crop": True,
    },
    "Bit": _CLIP,
    "CLIP": _CLIP,
    "Siglip": {**_HALF, **_SQUARE, "resample": 3},
    "DINOv3ViT": {**_IMAGENET, **_SQUARE},
    "Segformer": {**_IMAGENET, "size": {"height": 512, "width": 512}, "resample": 2},
    "Detr": {**_IMAGENET, "size": {"shortest_edge": 800, "longest_edge": 1333}, "resample": 2, "do_pad": True},
    "RTDetr": {**_IMAGENET, "size": {"height": 640, "width": 640}, "resample": 2, "do_normalize": False},
    "Yolos": {**_IMAGENET, "size": {"shortest_edge": 800, "longest_edge": 1333}, "resample": 2, "do_pad": True},
    "Sam": {
        **_IMAGENET,
        "size": {"longest_edge": 1024},
        "resample": 2,
        "do_pad": True,
        "pad_size": {"height": 1024, "width": 1024},
    },
}
# Kinds that resample real levels.
_UNROUNDED = ("DINOv3ViT",)
# Kinds that pad the images of a batch, and the multiples to which they round sizes down.
_MULTIPLES = {"Detr": 1, "Yolos": 16}
# Kinds that pad to a fixed size.
_PADDED = ("Sam",)
# For files without an image_processor_type.
_KIND_OF_MODEL = {
    "vit": "ViT",
    "swin": "ViT",
    "swinv2": "ViT",
    "deit": "DeiT",
    "bit": "Bit",
    "dinov2": "Bit",
    "dinov2_with_registers": "Bit",
    "dinov3_convnext": "DINOv3ViT",
    "dinov3_vit": "DINOv3ViT",
    "clip": "CLIP",
    "kosmos-2": "CLIP",
    "paligemma": "Siglip",
    "siglip": "Siglip",
    "sam": "Sam",
    "segformer": "Segformer",
    "detr": "Detr",
    "rt_detr": "RTDetr",
    "rt_detr_v2": "RTDetr",
    "d_fine": "RTDetr",
    "yolos": "Yolos",
}
_COMMON = {
    "do_resize": True,
    "do_center_crop": False,
    "do_rescale": True,
    "do_normalize": True,
    "rescale_factor": 1 / 255,
}
# Settings of labels alone, by kind: see `mask_targets`.
_OF_LABELS = {"Segformer": ("do_reduce_labels",)}
# Steps that are not supported.
_UNSUPPORTED = (
    "pad_size",
    "apply_ocr",
    "do_thumbnail",
    "do_align_long_axis",
    "do_flip_channel_order",
    "do_reduce_labels",
)


def settings(folder: Path) -> JsonObject:
    """Returns the arguments of `ImageProcessor` for the file of a folder.

    Raises:
        ImageProcessorError: see `ImageProcessor.from_huggingface`.
    """
    config = read_processor_config(folder, "image_processor", ImageProcessorError)
    kind = _kind(config, folder)
    try:
        return arguments(config, kind)
    except ImageProcessorError as error:
        raise ImageProcessorError(f"The image processor of '{folder}': {error}") from None


def _kind(config, folder):
    name = config.get("image_processor_type") or config.get("feature_extractor_type")
    if name is None:
        path = os.path.join(folder, "config.json")
        model = read_json(path, ImageProcessorError).get("model_type") if os.path.isfile(path) else None
        if model not in _KIND_OF_MODEL:
            raise ImageProcessorError(f"'{folder}' does not specify the type of its image processor.")
        return _KIND_OF_MODEL[model]
    kind = str(name)
    for ending in ("Pil", "Fast", "ImageProcessor", "FeatureExtractor"):
        kind = kind.removesuffix(ending)
    if kind not in DEFAULTS:
        raise ImageProcessorError(
            f"'{folder}' has an image processor of type {name!r}. Supported: {', '.join(sorted(DEFAULTS))}."
        )
    return kind


def arguments(config: dict[str, Any], kind: str) -> dict[str, Any]:
    """Returns the arguments of `ImageProcessor` from the settings of a processor of a kind in `DEFAULTS`."""
    given = {key: value for key, value in config.items() if value is not None}
    values = {**_COMMON, **DEFAULTS[kind], **given}
    supported = (
        *_OF_LABELS.get(kind, ()),
        *(("do_pad",) if kind in _MULTIPLES else ("do_pad", "pad_size") if kind in _PADDED else ()),
    )
    for name in (*_UNSUPPORTED, "do_pad"):
        if given.get(name) and name not in supported:
            raise ImageProcessorError(f"{name} is not supported.")
    for name in ("do_resize", "do_center_crop", "do_rescale", "do_normalize"):
        if not isinstance(values[name], bool):
            raise ImageProcessorError(f"{name} must be true or false. Received: {values[name]!r}")
    if values["do_center_crop"] and values.get("crop_size") is None:
        raise ImageProcessorError("do_center_crop is true, but there is no crop_size.")
    resample = values["resample"]
    if not isinstance(resample, int) or not 0 <= resample < len(_FILTERS):
        raise ImageProcessorError(f"resample must be an int from 0 to {len(_FILTERS) - 1}. Received: {resample!r}")
    if values["do_rescale"] and not is_number(values["rescale_factor"]):
        raise ImageProcessorError(f"rescale_factor must be a number. Received: {values['rescale_factor']!r}")
    # A single number is the shortest edge for the kinds that keep proportions, and a square for the others.
    keeps_proportions = not given.get("default_to_square", kind not in ("Bit", "CLIP", "Siglip"))
    if given.get("use_square_size"):
        values["size"], keeps_proportions = _edge(values["size"]), False
    return {
        "size": _size(values["size"], keeps_proportions) if values["do_resize"] else None,
        "crop_size": _size(values.get("crop_size"), False) if values["do_center_crop"] else None,
        "resample": _FILTERS[resample],
        "rescale": values["rescale_factor"] if values["do_rescale"] else None,
        "mean": values["image_mean"] if values["do_normalize"] else None,
        "std": values["image_std"] if values["do_normalize"] else None,
        "round_levels": kind not in _UNROUNDED,
        "multiple_of": _MULTIPLES.get(kind, 1),
        "pad": _pad(values, kind),
    }


def _pad(values, kind):
    if kind in _PADDED:
        return values["do_pad"] and _size(values["pad_size"], False)
    return kind in _MULTIPLES and bool(values.get("pad_and_return_pixel_mask", values["do_pad"]))


def _edge(size):
    return size.get("shortest_edge", size) if isinstance(size, dict) else size


def _size(size, keeps_proportions):
    if is_count(size):
        return {"shortest_edge": size} if keeps_proportions else (size, size)
    return size


def write(processor: ImageProcessor, folder: Path) -> None:
    """Writes `preprocessor_config.json`; see `ImageProcessor.to_huggingface`."""
    _check_writable(processor)
    kind, normalizes = _kind_of(processor), processor.mean is not None or processor.std is not None
    content: JsonObject = {
        "image_processor_type": f"{kind}ImageProcessor",
        "do_convert_rgb": True,
        "do_resize": processor.size is not None,
        "size": processor.size or DEFAULTS[kind]["size"],
        "resample": _FILTERS.index(processor.resample),
        "do_center_crop": processor.crop_size is not None,
        "do_rescale": processor.rescale is not None,
        "rescale_factor": 1 / 255 if processor.rescale is None else processor.rescale,
        "do_normalize": normalizes,
    }
    if _pads_for_detection(processor):
        content["do_pad"] = processor.pad
    if isinstance(processor.pad, tuple):
        content |= {"do_pad": True, "pad_size": dict(zip(("height", "width"), processor.pad, strict=True))}
    if processor.crop_size is not None:
        content["crop_size"] = processor.crop_size
    if normalizes:
        content["image_mean"] = _three(processor.mean, 0.0)
        content["image_std"] = _three(processor.std, 1.0)
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _check_writable(processor: ImageProcessor) -> None:
    """Raises an error for what no kind of the file supports."""
    if processor.channel_order != "rgb":
        raise ImageProcessorError(f"{FILE} does not support the channel order {processor.channel_order!r}.")
    to_size = isinstance(processor.pad, tuple)
    if to_size and (set(processor.size or {}) != {"longest_edge"} or processor.crop_size or processor.multiple_of != 1):
        raise ImageProcessorError(
            f"{FILE} supports padding to a size as of SAM: the longest edge is resized, and nothing cropped. Received: "
            f"{processor!r}"
        )
    if _pads_for_detection(processor) and (
        processor.multiple_of not in _MULTIPLES.values()
        or processor.crop_size is not None
        or not processor.round_levels
    ):
        raise ImageProcessorError(
            f"{FILE} supports pad and multiple_of as of DETR and YOLOS: multiples of 16 or none, no crop, rounded levels. "
            f"Received: {processor!r}"
        )


def _pads_for_detection(processor: ImageProcessor) -> bool:
    return processor.pad is True or processor.multiple_of != 1


def _kind_of(processor: ImageProcessor) -> str:
    """The first word of the name of the class in transformers."""
    if _pads_for_detection(processor):
        return "Yolos" if processor.multiple_of == _MULTIPLES["Yolos"] else "Detr"
    if isinstance(processor.pad, tuple):
        return _PADDED[0]
    if not processor.round_levels:
        return _UNROUNDED[0]
    proportional = processor.size is None or "height" not in processor.size
    return "CLIP" if proportional else "ViT" if processor.crop_size is None else "DeiT"


def _three(values, otherwise):
    values = otherwise if values is None else values
    return [values] * 3 if is_number(values) else values
