"""TFLite files read in place, without an object tree."""
