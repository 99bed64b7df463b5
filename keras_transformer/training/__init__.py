"""Losses, metrics, schedules, callbacks, adapters and distribution for `model.fit`."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
