"""Token mixers that convolve over the sequence."""
