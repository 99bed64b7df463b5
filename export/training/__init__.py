"""Training on the device: TFLite files whose signatures train, and the class that runs them."""
