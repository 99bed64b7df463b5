# The messages of TensorFlow.
