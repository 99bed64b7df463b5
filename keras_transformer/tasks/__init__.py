"""Heads on backbones: ordinary Keras models that train with `compile` and `fit`."""

from keras_transformer.tasks.image_classifier import ImageClassifier
from keras_transformer.tasks.language_model import LanguageModel

TASKS = {
    "image_classification": ImageClassifier,
    "language_model": LanguageModel,
}

__all__ = ["TASKS", "ImageClassifier", "LanguageModel"]
