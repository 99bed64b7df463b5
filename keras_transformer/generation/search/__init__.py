"""Searches over token sequences: greedy, beam, contrastive, speculative and tree search."""
