"""Export of Keras models to verified bundles of SavedModel, TFLite and ONNX files, and the runtimes that load them.

Names load on first use: importing this package imports neither TensorFlow nor Keras.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
