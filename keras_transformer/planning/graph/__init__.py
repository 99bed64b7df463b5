"""Costs counted in the traced graph of a step."""
