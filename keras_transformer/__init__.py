"""Transformers for Keras 3 that train with `model.fit` and export, verified, to SavedModel, TFLite and ONNX.

Importing this package loads neither Keras nor TensorFlow: each subpackage is imported on first use.
"""

import lazy_loader

from keras_transformer.utils.checkout import find_export
from keras_transformer.utils.keras_registration import register_with_keras
from keras_transformer.version import __version__ as __version__

find_export()
register_with_keras()

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
