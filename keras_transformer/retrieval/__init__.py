"""Finding passages that are like the text at hand: a database of chunks, and what trains and generates with it.

Nothing here imports TensorFlow or Keras before training batches or an encoder of theirs are asked for, so that an exported
bundle retrieves where only its runtime is installed.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
