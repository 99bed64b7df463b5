"""Training of every layer with the integers of its files: weights by channel, activations by tensor."""
