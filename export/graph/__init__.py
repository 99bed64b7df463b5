"""The traced graph of each signature of a model: its operations, shapes, types and layers."""
