"""`MultiHeadAttention`: projections, heads and axes around a mechanism."""
