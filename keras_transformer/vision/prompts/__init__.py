"""Prompts of images: points, boxes and masks as tokens of a mask decoder, and as arrays."""
