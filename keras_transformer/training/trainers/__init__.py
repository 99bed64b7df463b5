"""Models whose training step is their own: next tokens of large vocabularies, policy gradients, draft heads."""
