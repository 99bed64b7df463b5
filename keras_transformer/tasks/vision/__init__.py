"""Tasks of images."""
