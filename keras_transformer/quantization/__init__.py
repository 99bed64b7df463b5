"""Weights as integers with scales: chosen after training, with or without data; exported files have the same ones."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
