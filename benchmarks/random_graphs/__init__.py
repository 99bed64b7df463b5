"""Random graphs of Keras: drawn, exported, compared on inputs of all regions, and reduced where a file is wrong."""
