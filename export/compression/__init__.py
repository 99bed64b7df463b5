"""The smallest files of a model that keep its accuracy: several quantizations are tried, measured and compared."""
