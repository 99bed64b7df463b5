"""Retrieval of similar passages: a database of chunks, and training and generation with it.

Only training batches and encoders import TensorFlow or Keras, so that an exported bundle retrieves where only its
runtime is installed.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
