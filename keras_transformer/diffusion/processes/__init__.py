"""Processes that turn data into noise, each with what a denoiser learns to predict."""
