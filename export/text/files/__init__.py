"""Files that contain a tokenizer: their signatures, how they are written, and how they are checked."""
