"""Adapters from Keras language models to the decoding loop and the engine."""
