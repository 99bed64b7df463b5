"""Bundles on disk: writing, manifest, probes and tokenizer."""
