"""Errors of quantization."""


class WeightQuantizationError(ValueError):
    """The scheme, the weights or the calibration data do not fit each other, or the model."""
