"""Images to patches and back."""
