"""Models of several kinds of inputs."""
