"""What becomes of each operation of TensorFlow in each format: one table, `OPERATIONS` of `table.py`."""
