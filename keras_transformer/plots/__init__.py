"""Pictures of what a model does and how it learned; each function returns a matplotlib figure to show or to save."""

from keras_transformer.plots.attention import attention
from keras_transformer.plots.attention_pattern import attention_pattern
from keras_transformer.plots.predictions import predictions
from keras_transformer.plots.training_curve import training_curve

__all__ = ["attention", "attention_pattern", "predictions", "training_curve"]
