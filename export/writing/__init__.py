"""Writing a bundle: its files are converted, verified, quantized and described."""
