"""Attention to keys and values that another layer made, or another sequence."""
