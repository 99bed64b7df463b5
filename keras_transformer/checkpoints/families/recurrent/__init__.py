"""Families of models with a recurrent state."""
