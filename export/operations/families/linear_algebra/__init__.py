"""Linear algebra: what formats without factorizations of matrices compute in their place."""
