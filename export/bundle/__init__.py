"""The bundle on disk: writing, manifest, probes and tokenizer files."""
