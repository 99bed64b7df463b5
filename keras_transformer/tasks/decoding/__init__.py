"""Keras language models as the decoding loop and the engine call them."""
