"""Recurrences of the delta rule."""
