"""TFLite files for MediaPipe Tasks."""
