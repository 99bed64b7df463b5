"""What `model.fit` is fed and steered with: image data, augmented batches and learning-rate schedules."""

import importlib

from keras_transformer.training.schedules import WarmupCosine

# Loaded on first use: batches needs TensorFlow.
_LAZY = {
    "Augmentation": "augmentation",
    "ClassMismatchError": "errors",
    "CorruptImageError": "errors",
    "ImageData": "images",
    "ImageDataError": "errors",
    "ImageSizeError": "errors",
    "ImageSet": "images",
    "MissingDataError": "errors",
    "NoImagesError": "errors",
    "batches": "pipeline",
    "load_images": "images",
    "on_pixels": "pipeline",
}

__all__ = ["WarmupCosine", *_LAZY]


def __getattr__(name):
    if name in _LAZY:
        return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted(__all__)
