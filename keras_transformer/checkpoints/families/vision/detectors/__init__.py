"""Families of object detectors."""
