"""From images to tokens."""

from keras_transformer.vision.errors import ImageError, ImageProcessorError
from keras_transformer.vision.patch_embedding import PatchEmbedding
from keras_transformer.vision.patch_merging import PatchMerging
from keras_transformer.vision.processor import ImageProcessor

__all__ = ["ImageError", "ImageProcessor", "ImageProcessorError", "PatchEmbedding", "PatchMerging"]
