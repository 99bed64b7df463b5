"""Linear algebra: what formats without factorizations of matrices compute in their place."""

from keras_transformer.export.operations.families.linear_algebra import elimination, reflections, rotations

OPERATIONS = (*elimination.OPERATIONS, *reflections.OPERATIONS, *rotations.OPERATIONS)
