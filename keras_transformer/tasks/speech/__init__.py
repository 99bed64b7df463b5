"""Recognition of speech: heads, texts of recordings and their error rates."""
