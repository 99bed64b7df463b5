"""Plots of models and their training. Each function returns a matplotlib figure."""

from keras_transformer.plots.accuracy_by_size import accuracy_by_size
from keras_transformer.plots.attention import attention
from keras_transformer.plots.attention_pattern import attention_pattern
from keras_transformer.plots.coding_rate import coding_rate
from keras_transformer.plots.expert_load import expert_load
from keras_transformer.plots.gradients_by_layer import gradients_by_layer
from keras_transformer.plots.learning_rates import learning_rates
from keras_transformer.plots.position_encoding import position_encoding
from keras_transformer.plots.predictions import predictions
from keras_transformer.plots.training_curve import training_curve

__all__ = [
    "accuracy_by_size",
    "attention",
    "attention_pattern",
    "coding_rate",
    "expert_load",
    "gradients_by_layer",
    "learning_rates",
    "position_encoding",
    "predictions",
    "training_curve",
]
