"""Image files to the inputs of models."""
