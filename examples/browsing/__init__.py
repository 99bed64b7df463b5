"""Browsing: a text browser over a corpus on this machine, for language models that answer with quotes.

Importing it loads neither Keras nor TensorFlow.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
