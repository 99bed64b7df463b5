"""How much memory and time a model will take, on devices that need not be here: counted, not run."""

import importlib

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


def __getattr__(name):
    if name in _LAZY:
        return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted(__all__)
