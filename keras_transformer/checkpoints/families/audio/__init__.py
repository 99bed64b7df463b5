"""Families of audio models."""
