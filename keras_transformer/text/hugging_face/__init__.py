"""Tokenizers read from the files of Hugging Face."""
