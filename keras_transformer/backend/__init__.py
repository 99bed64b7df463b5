"""What Keras lacks: compiled and in-place functions, scans, gradients and recomputation on every backend."""
