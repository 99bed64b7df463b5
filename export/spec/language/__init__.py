"""Export specs of language models: their signatures and their probes."""
