"""From images to tokens."""

from keras_transformer.vision.patch_embedding import PatchEmbedding

__all__ = ["PatchEmbedding"]
