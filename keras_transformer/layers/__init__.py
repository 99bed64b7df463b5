"""Small layers that several packages share: projections, norms and ternary linear maps."""
