"""Stacks of decoder blocks that carry a memory from segment to segment."""
