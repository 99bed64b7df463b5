"""The stage of quantized files: their weights, their outputs, and what they predict, against those of the float files."""
