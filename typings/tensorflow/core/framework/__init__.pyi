# The messages of graphs, with the fields that are read.
