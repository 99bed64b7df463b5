"""Mutated files and requests, each in a process with limits: `python -m tests.fuzz --minutes 10`."""
