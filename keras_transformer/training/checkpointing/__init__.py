"""Checkpoints that a training resumes from, in one file or by shard."""
