"""Weights and rows over several devices."""
