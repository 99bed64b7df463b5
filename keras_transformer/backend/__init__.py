"""What Keras lacks on every backend: compiled functions, in-place state, scans, gradients and recomputation."""
