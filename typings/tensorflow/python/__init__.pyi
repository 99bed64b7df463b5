# The modules of TensorFlow that are read below its public ones.
