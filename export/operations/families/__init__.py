"""The operations, by family: each file has functions and ends with `OPERATIONS`, the entries of the table."""
