"""Training on several devices: replicas, split weights and rows, and what the devices exchange."""
