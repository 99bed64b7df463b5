"""The recurrences of RWKV."""
