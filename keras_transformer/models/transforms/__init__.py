"""Functions from a model to a model with other inputs or outputs, and the walk of its graph."""
