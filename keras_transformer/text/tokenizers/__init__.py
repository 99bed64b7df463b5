"""Tokenizers: WordPiece, SentencePiece, byte-pair encoding, characters and bytes."""
