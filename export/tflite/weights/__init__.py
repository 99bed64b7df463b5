"""The weights of TFLite files: inserted, read, and compared."""
