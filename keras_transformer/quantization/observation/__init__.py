"""What the layers of a model receive from calibration data, and how much they depend on it."""
