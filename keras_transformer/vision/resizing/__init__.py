"""Images and masks of another size."""
