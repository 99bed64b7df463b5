"""Image data sets and their augmented batches."""
