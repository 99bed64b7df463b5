"""Families of models of several kinds of inputs."""
