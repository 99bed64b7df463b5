"""Retrieval of similar text: a database of chunks, and training and generation with it.

TensorFlow and Keras are imported only by training batches and `MeanEmbedding`, so that an exported bundle can retrieve where
only its runtime is installed.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
