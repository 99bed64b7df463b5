"""Boxes, and layers of object detectors."""
