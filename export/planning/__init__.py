"""How much memory and time a model will take, on devices that need not be here: counted, not run."""

from keras_transformer.lazy import lazy

# Loaded on first use: the data of devices need no TensorFlow.
_LAZY = {
    "DEVICES": "devices",
    "OPTIMIZER_SLOTS": "plans",
    "Device": "devices",
    "Plan": "plans",
    "UnknownCostError": "products",
    "build": "building",
    "get_device": "devices",
    "plan": "plans",
}

__all__ = list(_LAZY)

__getattr__, __dir__ = lazy(__name__, _LAZY, __all__)
