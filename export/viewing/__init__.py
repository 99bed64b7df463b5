"""The page of `keras-transformer view`: what the weights of a bundle cost, and attention over an input."""
