"""A traced function of one index for all rows of a batch, as a function of an index for each row."""
