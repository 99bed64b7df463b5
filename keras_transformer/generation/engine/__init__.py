"""Continuous batching: one engine that serves many generation requests in one batch."""
