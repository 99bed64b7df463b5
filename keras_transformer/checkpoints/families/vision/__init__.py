"""Families of vision models."""
