"""Microcontrollers: TensorFlow Lite for Microcontrollers, and the NPUs beside it."""
