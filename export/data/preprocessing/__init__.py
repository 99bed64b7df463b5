"""The records of the layers between the inputs of a signature and those of its file."""
