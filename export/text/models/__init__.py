"""The models of tokenizers in a graph: WordPiece, byte-pair encoding and Unigram."""
