"""The operations, by family: each file has the functions and ends with `OPERATIONS`, the entries of the table."""
