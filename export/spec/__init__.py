"""What is exported: signatures, their inputs, axes and probes."""
