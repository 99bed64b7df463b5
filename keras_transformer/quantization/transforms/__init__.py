"""Changes of weights that leave the outputs: folding, rotation, smoothing."""
