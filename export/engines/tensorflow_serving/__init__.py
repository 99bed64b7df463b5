"""Model directories of TensorFlow Serving."""
